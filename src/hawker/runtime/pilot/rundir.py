"""The driver's files of machines on the host: for each a run directory, `machines`/<machine id>/run.

The lock on the journal is the truth about life: the pilot holds it from before its first instruction to its end,
whoever started it, so no daemon is ever fooled by a stale file or a process id used again.
"""

import fcntl
import os
from pathlib import Path
from typing import TypeVar

import msgspec

from hawker.errors import NotFound, WrongState
from hawker.host.mount import discard
from hawker.host.rmtree import remove_tree
from hawker.ids import MachineId
from hawker.runtime.driver import Exit
from hawker.runtime.spec import InstanceSpec
from hawker.value_object import ValueObject

_T = TypeVar("_T")
_ROOM_BYTES = 4096
_PIECE_BYTES = 65536


class RunDir(ValueObject, frozen=True):
    """The run directory of one machine, whether it is there or not."""

    path: Path

    @property
    def socket(self) -> Path:
        return self.path / "pilot.sock"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def outputs(self) -> tuple[Path, Path]:
        return self.path / "output.0", self.path / "output.1"

    @property
    def vmm(self) -> Path:
        """The one directory that the machine's VMM can write to, with its sockets and snapshots."""
        return self.path / "vmm"

    @property
    def vsock(self) -> Path:
        """A socket that the VMM makes."""
        return self.vmm / "vsock.sock"

    @property
    def ports(self) -> Path:
        """The directory of the virtio serial ports: of each its socket and its lock."""
        return self.path / "ports"

    @property
    def snapshot(self) -> Path:
        """What the host knows of the machine's snapshot. While it is there the machine is suspended, with or without a
        process: its driver makes it when the snapshot is whole, and removes it before the guest goes on."""
        return self.path / "snapshot"

    @property
    def machine_id(self) -> MachineId:
        return MachineId(self.path.parent.name)

    @property
    def _spec(self) -> Path:
        return self.path / "instance"

    @property
    def _exit(self) -> Path:
        return self.path / "exit"

    @property
    def _pid(self) -> Path:
        return self.path / "pid"

    def exists(self) -> bool:
        return self.path.is_dir()

    def alive(self) -> bool:
        """Whether a pilot runs here, or is about to."""
        try:
            fd = os.open(self.journal, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def saved(self) -> bool:
        """Whether the machine is suspended and its memory in a snapshot."""
        return self.snapshot.exists()

    def lives(self) -> bool:
        """Whether the instance has not ended: somebody runs it, or it is in a snapshot."""
        return self.alive() or self.saved()

    def spec(self) -> InstanceSpec | None:
        return _read(self._spec, InstanceSpec)

    def write_spec(self, spec: InstanceSpec) -> None:
        _write(self._spec, spec)
        _keep_room(self._exit)

    def exit(self) -> Exit | None:
        """The exit as settled once, with what only the technology knew."""
        return _read(self._exit, Exit)

    def write_exit(self, exit: Exit) -> None:
        """Also on a full disk: into room that was kept for it."""
        _write(self._exit, exit)

    def pid(self) -> int | None:
        """The pilot's process id when it was started; whether it is still that process, only `alive` says."""
        return _read(self._pid, int)

    def write_pid(self, pid: int) -> None:
        _write(self._pid, pid)

    def forget_pid(self) -> None:
        """Whoever holds the lock from now on is not the one that was started before."""
        self._pid.unlink(missing_ok=True)

    def remove(self, trash: Path | None = None) -> None:
        """To `trash`, on the same file system, which its owner empties; without one all of it is removed now."""
        if trash is None:
            remove_tree(self.path)
        else:
            discard(self.path, trash)


class MachineFiles(ValueObject, frozen=True):
    """The run directories of all machines that a driver has below `machines`."""

    machines: Path

    def run(self, machine_id: MachineId) -> RunDir:
        """The run directory of a machine, whether it is there or not."""
        return RunDir(self.machines / machine_id / "run")

    def existing(self, machine_id: MachineId) -> RunDir:
        """The run directory of a machine that has an instance. Raises `NotFound`."""
        run = self.run(machine_id)
        if run.spec() is None:
            raise NotFound(f"machine {machine_id} has no instance")
        return run

    def living(self, machine_id: MachineId) -> RunDir:
        """The run directory of an instance that has not ended. Raises `NotFound` and `WrongState`."""
        run = self.existing(machine_id)
        if not run.lives():
            raise WrongState(f"machine {machine_id} is not running")
        return run

    def names(self) -> list[str]:
        """The names of everything below `machines`: ids of machines, and of what others put there."""
        return os.listdir(self.machines) if self.machines.is_dir() else []


def spec_of(run: RunDir) -> InstanceSpec:
    """The spec of an instance. Raises `NotFound` when it has just been removed."""
    spec = run.spec()
    if spec is None:
        raise NotFound("the machine's instance has just been removed")
    return spec


def _write(path: Path, value: object) -> None:
    """Whole or not at all. Files of a run directory are opened a dozen times a start, so by the system's own calls."""
    fresh, data = _new(path), msgspec.json.encode(value)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(fd).st_size
        if size == _ROOM_BYTES >= len(data):
            data = data.ljust(_ROOM_BYTES)  # JSON may end in blanks
        elif size:
            os.ftruncate(fd, 0)
        _write_all(fd, data)
    finally:
        os.close(fd)
    os.replace(fresh, path)


def _keep_room(path: Path) -> None:
    """A block of the disk for what will be written to `path`."""
    try:
        fd = os.open(_new(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return
    try:
        _write_all(fd, b" " * _ROOM_BYTES)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _new(path: Path) -> str:
    return f"{path}.new"


def _read(path: Path, shape: type[_T]) -> _T | None:
    """None too for a file that a crash of the host cut: it is then as if it had not been written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        data = _read_all(fd)
    finally:
        os.close(fd)
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.DecodeError:
        return None


def _read_all(fd: int) -> bytes:
    """Of a regular file: a short read is the last one."""
    data = piece = os.read(fd, _PIECE_BYTES)
    while len(piece) == _PIECE_BYTES:
        piece = os.read(fd, _PIECE_BYTES)
        data += piece
    return data
