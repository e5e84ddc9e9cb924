"""What Hawker can leave on a host outside its directory: processes, mounts, loop devices, interfaces, cgroups, packet
tables, trees staged in shared memory.

`host()` is a snapshot, `left(before)` what came since and is still there. Several nodes may share a host, so `left` can
be told marks (a directory, a node's or machine's id): then it tells only what bears one of them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")
_VMMS = ("qemu-system-x86", "qemu-system-aar", "firecracker", "cloud-hyperviso")
"""As the kernel has their names, cut to 15 bytes."""

_MACHINE_VARIABLE = "FLY_MACHINE_ID="


@dataclass(frozen=True, slots=True, order=True)
class Trace:
    """One thing on the host. `bears` is all text by which it can be told whose it is."""

    kind: str
    name: str
    bears: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def host() -> frozenset[Trace]:
    return frozenset([*_processes(), *_mounts(), *_loops(), *_interfaces(), *_cgroups(), *_tables(), *_staged()])


def left(before: frozenset[Trace], *marks: object) -> list[Trace]:
    since = host() - before
    return sorted(trace for trace in since if not marks or any(str(mark) in trace.bears for mark in marks))


def _processes() -> Iterator[Trace]:
    own = set(_ancestors(os.getpid()))
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) not in own:
            command, environment = _text(folder / "cmdline"), _text(folder / "environ")
            if _is_daemon(command):
                yield Trace("process", f"{folder.name} {_line(command)}", command + environment)
            elif _is_of_machine(_text(folder / "comm").strip(), command, environment):
                bears = command + environment + _text(folder / "cgroup") + _other_mounts(folder)
                yield Trace("process", f"{folder.name} {_line(command)}", bears)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        pid = int(_text(_PROC / str(pid) / "stat").rpartition(")")[2].split()[1])


def _is_daemon(command: str) -> bool:
    return "hawker" in [Path(word).name for word in command.split("\0")[:3]]


def _is_of_machine(name: str, command: str, environment: str) -> bool:
    """A pilot, a VMM or its keeper, or what runs in a machine. A zombie has neither command nor environment."""
    known = name in ("pilot", "keeper", *_VMMS)
    return bool(command) and (known or _MACHINE_VARIABLE in environment)


def _line(command: str) -> str:
    return command.replace("\0", " ").strip()


def _other_mounts(folder: Path) -> str:
    """Of a process that has mounts of its own: what it has as its root names the files of the machine that it runs in.
    The others may be a copy of all that the host has."""
    same = _link(folder / "ns/mnt") == _link(_PROC / "self/ns/mnt")
    lines = [] if same else _text(folder / "mountinfo").splitlines()
    return "\n".join(line for line in lines if line.split()[4] == "/")


def _mounts() -> Iterator[Trace]:
    for line in _text(_PROC / "self/mountinfo").splitlines():
        target = line.split()[4].encode().decode("unicode_escape")
        yield Trace("mount", target, f"{target} {line}")


def _loops() -> Iterator[Trace]:
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        backing = _text(file).strip()
        yield Trace("loop", f"{file.parts[3]} of {backing}", backing)


def _interfaces() -> Iterator[Trace]:
    return (Trace("interface", each.name, each.name) for each in Path("/sys/class/net").glob("hw*"))


def _cgroups() -> Iterator[Trace]:
    for folder, _, _ in os.walk("/sys/fs/cgroup"):
        if "hawker" in folder:
            yield Trace("cgroup", folder, folder)


def _tables() -> Iterator[Trace]:
    if os.geteuid() == 0 and shutil.which("nft"):
        listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True, timeout=60)
        yield from (Trace("table", line, line) for line in listed.stdout.splitlines() if "hawker" in line)


def _staged() -> Iterator[Trace]:
    return (Trace("staged tree", str(each), str(each)) for each in Path("/dev/shm").glob("hawker-*"))


def _text(file: Path) -> str:
    """Empty when it went away meanwhile or is not ours to read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _link(file: Path) -> str:
    try:
        return os.readlink(file)
    except OSError:
        return ""
