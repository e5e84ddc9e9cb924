"""A small filesystem of its own for a node's data directory, so that its disk can fill and become read-only.

An ext4 image file on a loop device. A living node's filesystem cannot be remounted read-only: the kernel refuses that
while files are open for writing, and a daemon always has some. So two things stand for it: `freeze` makes what the
daemon writes to immutable, which every later write meets, and `cover` puts a read-only view over it, which a daemon
that boots meets. Needs root.
"""

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hawker.errors import CannotStart
from hawker.host.mount import BIND, READ_ONLY, REMOUNT, is_mounted, mount, mounts, unmount

_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10  # linux/fs.h
_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE and FITHAW
_RECURSIVE, _MAKE_PRIVATE = 0x4000, 0x40000
_COMMAND_S = 60.0
_CHUNKS = (1 << 20, 1 << 16, 1 << 12, 1)
_MACHINES_OWN = frozenset({"disks", "layers", "rootfs", "journal", "output.0", "output.1"})
"""What a pilot or a workload writes to."""


class DataDisk:
    """`image` is the file that holds the filesystem, `target` the directory where it is mounted."""

    def __init__(self, image: Path, target: Path) -> None:
        self._image = image
        self._target = target
        self._filler = target / "filler"

    def make(self, size_mib: int) -> None:
        """Raises `CannotStart` when this host cannot mount it."""
        with self._image.open("wb") as file:
            file.truncate(size_mib << 20)
        self._target.mkdir()
        _run("mke2fs", "-q", "-t", "ext4", "-m", "0", "-F", str(self._image))
        _run("mount", "-o", "loop,nosuid", str(self._image), str(self._target))
        mount("", self._target, "", _MAKE_PRIVATE)
        self._target.chmod(0o700)

    def remove(self) -> None:
        """Whatever is mounted on it goes first; safe to repeat."""
        self.uncover()
        if is_mounted(self._target):
            self.go_on()
        self.thaw()
        for mounted in reversed(mounts(self._target)):
            unmount(mounted.target)
        self._image.unlink(missing_ok=True)

    # Slow.

    def stall(self) -> None:
        """Every write waits, as on a disk that does not answer."""
        self._control(_FREEZE)

    def go_on(self) -> None:
        """Safe to repeat."""
        with suppress(OSError):
            self._control(_THAW)

    def _control(self, request: int) -> None:
        directory = os.open(self._target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(directory, request, 0)
        finally:
            os.close(directory)

    # Full.

    def fill(self) -> None:
        """To the last byte."""
        with self._filler.open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, _free_bytes(self._target))
        with self._filler.open("ab", buffering=0) as file:
            for chunk in _CHUNKS:
                _write_until_full(file.fileno(), bytes(chunk))

    def drain(self) -> None:
        self._filler.unlink(missing_ok=True)

    # Read-only.

    def freeze(self) -> None:
        for path in self._written_by_daemon():
            _set_immutable(path, True)

    def thaw(self) -> None:
        for path in (self._target, *self._written_by_daemon()):
            _set_immutable(path, False)

    def cover(self) -> None:
        mount(str(self._target), self._target, "", BIND | _RECURSIVE)
        mount("", self._target, "", BIND | REMOUNT | READ_ONLY)

    def uncover(self) -> None:
        """The view goes, with the views of what is mounted below it."""
        while self._is_covered():
            _run("umount", "--lazy", str(self._target))

    def _is_covered(self) -> bool:
        return sum(mounted.target == self._target for mounted in mounts(self._target)) > 1

    def _written_by_daemon(self) -> Iterator[Path]:
        if not is_mounted(self._target):
            return
        for folder, below, files in os.walk(self._target, topdown=True):
            below[:] = [name for name in below if name not in _MACHINES_OWN and not is_mounted(Path(folder, name))]
            yield from (Path(folder, name) for name in files if name not in _MACHINES_OWN)
            yield Path(folder)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMMAND_S)
    except FileNotFoundError as error:
        raise CannotStart(f"{command[0]} is missing") from error
    except subprocess.CalledProcessError as error:
        raise CannotStart(f"{command[0]}: {error.stderr.strip()}") from error


def _free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _write_until_full(file: int, chunk: bytes) -> None:
    with suppress(OSError):
        while os.write(file, chunk) == len(chunk):
            pass


def _set_immutable(path: Path, immutable: bool) -> None:
    """Does what chattr(1) does, to what is a file or a directory and is still there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        with suppress(OSError):
            (flags,) = struct.unpack("i", fcntl.ioctl(file, _GET_FLAGS, bytes(4)))
            wanted = flags | _IMMUTABLE if immutable else flags & ~_IMMUTABLE
            fcntl.ioctl(file, _SET_FLAGS, struct.pack("i", wanted))
    finally:
        os.close(file)
