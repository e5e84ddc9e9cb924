"""What a node has on its host and what it leaves there, found without its daemon.

The first part finds what is mounted, which pilots live, and what belongs to nothing that runs or is recorded. The
second finds all that Hawker can leave outside its directory: `host()` is a snapshot, `left(before)` what came since and
is still there.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hawker.host.address import bridge_prefix, interface_prefix, mesh_name, spare_veth_name, veth_name
from hawker.host.changed_blocks import rings
from hawker.host.mount import MountEntry, mounts
from hawker.ids import InstanceId, MachineId, NodeId, SnapshotId, VolumeId, is_snapshot_id
from hawker.value_object import ValueObject

_PROC = Path("/proc")
_VMMS = ("qemu-system-x86", "qemu-system-aar", "firecracker", "cloud-hyperviso")
"""The programs of VMMs, as the kernel has their names, cut to 15 bytes."""

_MACHINE_VARIABLE = "FLY_MACHINE_ID="


@dataclass(frozen=True, slots=True, order=True)
class Residue:
    """One thing on the host. `bears` is all text by which its node, directory or machine can be told."""

    kind: str
    name: str
    bears: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def host() -> frozenset[Residue]:
    return frozenset(
        [*_processes(), *_mounts(), *_loops(), *_interfaces(), *_cgroups(), *_tables(), *_staged(), *_rings()]
    )


def left(before: frozenset[Residue], *marks: object) -> list[Residue]:
    since = host() - before
    return sorted(trace for trace in since if not marks or any(str(mark) in trace.bears for mark in marks))


def _processes() -> Iterator[Residue]:
    own = set(_ancestors(os.getpid()))
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) not in own:
            command, environment = _text(folder / "cmdline"), _text(folder / "environ")
            if _is_daemon(command):
                yield Residue("process", f"{folder.name} {_line(command)}", command + environment)
            elif _is_mesh(command):
                yield Residue("process", f"{folder.name} {_line(command)}", command)
            elif _is_of_machine(_text(folder / "comm").strip(), command, environment):
                bears = command + environment + _text(folder / "cgroup") + _other_mounts(folder)
                yield Residue("process", f"{folder.name} {_line(command)}", bears)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        pid = int(_text(_PROC / str(pid) / "stat").rpartition(")")[2].split()[1])


def _is_daemon(command: str) -> bool:
    return "hawker" in [Path(word).name for word in command.split("\0")[:3]]


def _is_mesh(command: str) -> bool:
    """What carries packets between hosts; the name of its device follows."""
    return Path(command.split("\0")[0]).name == "wireguard-go"


def _is_of_machine(name: str, command: str, environment: str) -> bool:
    """A pilot or its launcher, a VMM or its keeper, or what runs in a machine. A zombie has no command."""
    known = name in ("pilot", "launcher", "keeper", *_VMMS)
    return bool(command) and (known or _MACHINE_VARIABLE in environment)


def _line(command: str) -> str:
    return command.replace("\0", " ").strip()


def _other_mounts(folder: Path) -> str:
    """The mounts of a process that has mounts of its own: its root names the files of the machine that it runs in.
    The others may be a copy of all that the host has."""
    same = _link(folder / "ns/mnt") == _link(_PROC / "self/ns/mnt")
    lines = [] if same else _text(folder / "mountinfo").splitlines()
    return "\n".join(line for line in lines if line.split()[4] == "/")


def _mounts() -> Iterator[Residue]:
    for line in _text(_PROC / "self/mountinfo").splitlines():
        target = line.split()[4].encode().decode("unicode_escape")
        yield Residue("mount", target, f"{target} {line}")


def _loops() -> Iterator[Residue]:
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        backing = _text(file).strip()
        yield Residue("loop", f"{file.parts[3]} of {backing}", backing)


def _interfaces() -> Iterator[Residue]:
    return (Residue("interface", each.name, each.name) for each in Path("/sys/class/net").glob("hw*"))


def _cgroups() -> Iterator[Residue]:
    for folder, _, _ in os.walk("/sys/fs/cgroup"):
        if "hawker" in folder:
            yield Residue("cgroup", folder, folder)


def _tables() -> Iterator[Residue]:
    if os.geteuid() == 0 and shutil.which("nft"):
        listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True, timeout=60)
        yield from (Residue("table", line, line) for line in listed.stdout.splitlines() if "hawker" in line)


def _staged() -> Iterator[Residue]:
    return (Residue("staged tree", str(each), str(each)) for each in Path("/dev/shm").glob("hawker-*"))


def _rings() -> Iterator[Residue]:
    """Traces of changed blocks, which a move keeps while it copies beside its machine."""
    return (Residue("trace ring", each, each) for each in rings())


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


# What Hawker can leave on a host outside its directory: processes, mounts, loop devices, interfaces, cgroups,
# packet tables, trees staged in shared memory, traces of changed blocks. `host()` is a snapshot, `left(before)` what
# came since and is still there. Several nodes may share a host, so `left` can be told marks (a directory, a node's or
# machine's id): then it tells only what bears one of them.

_LAYER = re.compile(r"(?:^|,)upperdir=[^,]*/layers/([^/,]+)/(?:roots/[^/,]+/)?upper")
_MAPPED_LAYER = re.compile(r"^hawker:[^/]+/layers/([^/:]+)")
_READY_LAYER = "/layers/draft-"
_SYS_NET = Path("/sys/class/net")


def mounted(machines: Path) -> Mapping[MachineId, InstanceId]:
    """The instance whose writable layer is at each machine's root, or at those of its containers."""
    found = {}
    for mount in mounts(machines):
        layer = _layer_of(mount)
        if mount.target.name == "rootfs" and layer:
            found[MachineId(mount.target.parent.name)] = InstanceId(layer)
        elif mount.target.parent.name == "containers" and layer:
            found[MachineId(mount.target.parent.parent.name)] = InstanceId(layer)
    return found


def _layer_of(mount: MountEntry) -> str | None:
    """The name of its writable layer: by its directory, or by its own name where its ids are mapped."""
    named = _LAYER.search(mount.options) or _MAPPED_LAYER.search(mount.source)
    return None if named is None else named[1]


def networks(directory: Path) -> frozenset[MachineId]:
    """Machines that have a network namespace, whole or half removed."""
    return frozenset(MachineId(name) for name in os.listdir(directory)) if directory.is_dir() else frozenset()


def volumes(directory: Path) -> Mapping[VolumeId, int]:
    """The volumes that have a file, and the size of each file in bytes."""
    files = directory.glob("vol_*/disk") if directory.is_dir() else ()
    return {VolumeId(file.parent.name): file.stat().st_size for file in files}


def volumes_mounted(directory: Path) -> frozenset[VolumeId]:
    targets = [mount.target for mount in mounts(directory)]
    return frozenset(VolumeId(target.parent.name) for target in targets if target.name == "mounted")


def snapshots(directory: Path) -> frozenset[SnapshotId]:
    """The snapshots that are whole; drafts count for nothing."""
    names = [file.name for file in directory.iterdir()] if directory.is_dir() else []
    return frozenset(SnapshotId(name) for name in names if is_snapshot_id(name))


def pilots(machines: Path) -> Counter[MachineId]:
    """The number of living pilots of each machine, or of keepers where the pilot is inside a VMM. Both hold the journal
    open, even one that was removed."""
    found: Counter[MachineId] = Counter()
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and _name_of(folder) in ("pilot", "keeper"):
            held = {path.relative_to(machines).parts[0] for path in _open_files(folder) if _is_below(path, machines)}
            found.update(MachineId(name) for name in held)
    return found


def _is_below(path: Path, directory: Path) -> bool:
    return path != directory and path.is_relative_to(directory)


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""


def _open_files(process: Path) -> Iterator[Path]:
    try:
        for fd in (process / "fd").iterdir():
            yield Path(os.readlink(fd))
    except OSError:
        return  # it has ended, or it is another user's


class RecordedClaims(ValueObject, frozen=True):
    """The claims on a host while nothing is under way: the node and its directory, the machines that are recorded, and
    the machines whose processes run. With `guests` nothing of machines is mounted. The machines' resolver is there
    while machines are."""

    node_id: NodeId
    data_dir: Path
    recorded: Collection[MachineId]
    running: Collection[MachineId]
    guests: bool = False


def unclaimed(traces: Iterable[Residue], claims: RecordedClaims) -> list[str]:
    """The residue of a node that nothing accounts for. The mounts of layers that its daemon has ready for later starts
    are seen by nobody."""
    traces = list(traces)
    loops = {
        trace
        for trace in traces
        if trace.kind == "loop" and not _is_mounted(trace, traces) and _READY_LAYER not in trace.name
    }
    return sorted(str(trace) for trace in traces if trace in loops or not _is_claimed(trace, claims))


def _is_mounted(loop: Residue, traces: Iterable[Residue]) -> bool:
    device = f" /dev/{loop.name.split()[0]} "
    return any(trace.kind == "mount" and device in trace.bears for trace in traces)


_BESIDE = ("dns", "presence", "edge", "edge-process")
"""Commands of processes that a node has beside the daemon while it has machines."""


def _is_claimed(trace: Residue, claims: RecordedClaims) -> bool:
    match trace.kind:
        case "process":
            beside = any(f" {name} --data-dir {claims.data_dir}" in trace.name for name in _BESIDE)
            beside = beside or trace.bears.rstrip("\0").endswith(mesh_name(claims.node_id))
            return (beside and bool(claims.recorded)) or any(machine_id in trace.bears for machine_id in claims.running)
        case "mount":
            return _is_claimed_mount(Path(trace.name), claims)
        case "interface":
            return _is_claimed_interface(trace.name, claims)
        case "cgroup":
            _, _, below = trace.name.partition(f"hawker-{claims.node_id}/")
            return not below or below.split("/")[0] in claims.running
        case "staged tree" | "trace ring":
            return False
        case _:  # the node's own loop devices and packet table
            return True


def _is_claimed_mount(target: Path, claims: RecordedClaims) -> bool:
    """Images stay mounted while the node has machines; the directories of a machine bear its id. Whether a volume may
    be mounted is asked elsewhere."""
    if not target.is_relative_to(claims.data_dir):
        return True
    first, *rest = target.relative_to(claims.data_dir).parts or ("",)
    if claims.guests and first in ("machines", "mounts", "volumes"):
        return False
    if first == "volumes":
        return target.name == "mounted"
    return first in ("", "mounts") or not rest or rest[0] in claims.recorded


def _is_claimed_interface(name: str, claims: RecordedClaims) -> bool:
    node_id = claims.node_id
    if name.startswith(bridge_prefix(node_id)):
        return any((_SYS_NET / name / "brif").iterdir()) if (_SYS_NET / name / "brif").is_dir() else True
    if (
        name == mesh_name(node_id)
        or name.startswith(spare_veth_name(node_id).removesuffix("%d"))
        or not name.startswith(interface_prefix(node_id))
    ):
        return True
    return name in {veth_name(node_id, machine_id) for machine_id in claims.recorded}
