"""A machine with a kernel of its own, without a driver: QEMU with our pilot as its first program, and its disks.

The image is this host's shell and what it takes to look around, with the libraries that they need.
"""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.host.facts import tsc_khz
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import ExecSpec, OutputChunk
from hawker.runtime.pilot import messages
from hawker.runtime.pilot.frames import FrameKind
from hawker.runtime.pilot.output import Segment, read_output
from hawker.runtime.spec import (
    Ends,
    FileSpec,
    GuestLink,
    InstanceLimits,
    InstanceSpec,
    ProcessSpec,
    RootDisk,
    VolumeDisk,
)
from tests.guest.pilot import Pilot
from tests.guest.port import Port
from tests.kernel import boot_files

PORTS = 2
DEADLINE_S = 240.0
MIB = 1 << 20
JOURNAL_BYTES = 64 << 10
SEGMENT_BYTES = 128 << 10
NAMES = ("ledger", "image", "layer", "volume")
MAC = "02:00:00:00:00:03"

_QEMU = "qemu-system-x86_64"
_BOOTS = 4  # as many as a driver tries
_PROGRAMS = (
    "sh",
    "cat",
    "date",
    "dd",
    "head",
    "id",
    "ls",
    "mkdir",
    "sleep",
    "stat",
    "sync",
    "tail",
    "touch",
    "unshare",
)


def require_tools() -> None:
    for tool in (_QEMU, "mkfs.erofs", "mke2fs", "e2fsck"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def make_tree(root: Path) -> None:
    for name in ("etc", "tmp", "bin"):
        (root / name).mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data").chmod(0o777)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    for program in _PROGRAMS:
        path = shutil.which(program)
        assert path is not None, program
        shutil.copy(path, root / "bin")
        needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split()
        for library in (word for word in needed if word.startswith("/")):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])


def make_erofs(tree: Path, file: Path) -> None:
    subprocess.run(["mkfs.erofs", "--quiet", file, tree], check=True, stdout=subprocess.DEVNULL)


def make_ext4(file: Path, size_bytes: int, tree: Path | None = None) -> None:
    with file.open("wb") as fresh:
        fresh.truncate(size_bytes)
    filled = ["-d", str(tree)] if tree else []
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", *filled, str(file)], check=True)


def fresh_disks(files: Path, image: Path) -> None:
    """All of a machine but what is in its image."""
    (files / "image").symlink_to(image)
    make_ext4(files / "layer", 64 * MIB)
    make_ext4(files / "volume", 32 * MIB)
    with (files / "ledger").open("wb") as fresh:
        fresh.truncate(JOURNAL_BYTES + 2 * SEGMENT_BYTES)
    (files / "journal").symlink_to("ledger")  # where the reader looks for it


def vm_spec(
    *commands: str | ProcessSpec,
    volume: VolumeDisk | None = None,
    link: GuestLink | None = None,
    ends: Ends = Ends.FIRST,
) -> bytes:
    """The run spec of a machine with all disks; a string is for its shell."""
    processes = tuple(
        ProcessSpec(argv=("/bin/sh", "-c", each), env={}) if isinstance(each, str) else each for each in commands
    )
    return messages.run_spec(
        InstanceSpec(
            machine_id=MachineId("00000000000001"),
            instance_id=InstanceId("instance-1"),
            hostname="box",
            processes=processes,
            files=(FileSpec(path="/etc/greeting", content=b"hello\n"),),
            ends=ends,
            limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
            root_disk=RootDisk(image="unused", layer="unused"),
            volumes=(volume or VolumeDisk(name="volume", file="unused", target="/data"),),
            link=link,
            stop_signal="SIGTERM",
        ),
        contained=True,
        now=SystemClock().now(),
    )


@dataclass(slots=True)
class VmPilot(Pilot):
    """Its journal and output are on the ledger."""

    def output(self) -> list[OutputChunk]:
        first, second = (
            Segment(self.files / "ledger", JOURNAL_BYTES + at * SEGMENT_BYTES, SEGMENT_BYTES, consecutive=True)
            for at in range(2)
        )
        return read_output((first, second))

    def shell(self, command: str, *, user: str = "", channel: int = 100) -> str:
        """What a command says, both streams; its exit code is its last line."""
        self.begin_shell(command, user=user, channel=channel)
        said = b""
        while (frame := self.next()).channel != channel or frame.kind != FrameKind.EXIT:
            said += frame.payload if frame.channel == channel else b""
        return said.decode()

    def begin_shell(self, command: str, *, user: str = "", channel: int = 100) -> None:
        argv = ("/bin/sh", "-c", f"{command}\necho $?")
        self.stream.sendall(messages.exec_request(channel, ExecSpec(argv=argv, user=user)))


@dataclass(slots=True)
class Machine:
    program: subprocess.Popen[bytes]
    files: Path

    def wire(self, port: int = 0) -> socket.socket:
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(DEADLINE_S)
        wire.connect(str(self.files / f"port{port}"))
        return wire

    def pilot(self, wire: socket.socket, nonce: bytes = b"nonce  1") -> VmPilot:
        return VmPilot(self.program, Port(wire, nonce), self.files)

    def status(self) -> int:
        return self.program.wait(DEADLINE_S)

    def console(self) -> str:
        return (self.files / "console").read_text(errors="replace")

    def order(self, command: str, **arguments: object) -> None:
        """One order to QEMU's monitor."""
        with socket.socket(socket.AF_UNIX) as wire, wire.makefile("rw") as lines:
            wire.settimeout(DEADLINE_S)
            wire.connect(str(self.files / "monitor"))
            lines.readline()
            for each in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(each) + "\n")
                lines.flush()
                assert "return" in lines.readline()


@contextmanager
def machine(files: Path, *arguments: str, memory_mib: int = 192) -> Iterator[Machine]:
    """Its pilot is there, or it has ended; whatever still runs at the end is ended."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(_listener(files / f"port{port}")) for port in range(PORTS)]
        fds = [listener.fileno() for listener in listeners]
        command = _command(files, fds, arguments, memory_mib)
        booted = stack.enter_context(_launched(files, command, fds))
        for _ in range(_BOOTS - 1):
            if not _starts_again(booted):
                break
            booted = stack.enter_context(_launched(files, command, fds))
        try:
            yield booted
        except TimeoutError as error:
            error.add_note(f"its console: {booted.console()[-2000:]}")
            raise


@contextmanager
def _launched(files: Path, command: list[str], fds: list[int]) -> Iterator[Machine]:
    with (files / "console").open("wb") as console:
        program = subprocess.Popen(
            command, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
        )
    try:
        yield Machine(program, files)
    finally:
        program.kill()
        program.wait()


def _starts_again(booted: Machine) -> bool:
    """A driver would launch it once more."""
    with booted.wire(PORTS - 1) as wire, suppress(ConnectionError):
        port = Port(wire, b"nonce  0")
        if port.recv(1):
            port.close()
            return False
    return booted.status() == 0 and "hawker: start again:" in booted.console()


def _listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(4)
    return listener


def _command(files: Path, fds: list[int], arguments: tuple[str, ...], memory_mib: int) -> list[str]:
    kernel = boot_files("bzImage")
    counter = f"tsc_early_khz={tsc_khz(SystemClock())} tsc=reliable"
    line = f"console=ttyS0 quiet reboot=t panic=-1 {counter} hawker.end=reboot hawker.timer=62500"
    command = [_QEMU, "-M", "microvm,acpi=on,rtc=on,isa-serial=on", "-accel", "tcg,tb-size=64", "-cpu", "max"]
    command += ["-m", str(memory_mib), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    command += ["-kernel", str(kernel.kernel), "-initrd", str(kernel.initramfs)]
    command += ["-append", " ".join((line, f"hawker.disks={','.join(NAMES)}", *arguments))]
    command += ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]
    command += ["-qmp", f"unix:{files}/monitor,server=on,wait=off"]
    for name in NAMES:
        read_only = "on" if name == "image" else "off"
        command += ["-drive", f"id={name},file={files}/{name},format=raw,if=none,readonly={read_only}"]
        command += ["-device", f"virtio-blk-device,drive={name}"]
    command += ["-device", "virtio-serial-device,id=ports,max_ports=4"]
    for port, fd in enumerate(fds):
        command += ["-chardev", f"socket,id=port{port},fd={fd},server=on,wait=off"]
        command += ["-device", f"virtserialport,bus=ports.0,nr={port + 1},chardev=port{port},name=hawker.{port}"]
    return [*command, "-netdev", "hubport,id=net,hubid=0", "-device", f"virtio-net-device,netdev=net,mac={MAC}"]
