"""Block files: which filesystem is in one, and loop devices for kernels that cannot mount the file itself."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hawker.errors import BadRequest

_EROFS_MAGIC = 0xE0F5E1E2
_EXT4_MAGIC = 0xEF53
_SUPERBLOCK = 1024
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CLR_FD = 0x4C01
_LOOP_SET_CAPACITY = 0x4C07
_SYS_BLOCK = Path("/sys/block")
_LO_READ_ONLY, _LO_AUTOCLEAR = 1, 4
_LOOP_MAJOR_TRIES = 20
_LO_FLAGS_OFFSET = 52  # of lo_flags in struct loop_info64
_LOOP_INFO64_SIZE = 232


def filesystem_of(file: Path) -> str:
    """ "erofs" or "ext4", by the superblock. Raises `BadRequest` for anything else."""
    with file.open("rb") as stream:
        head = stream.read(_SUPERBLOCK + 58)[_SUPERBLOCK:]
    if len(head) >= 4 and struct.unpack_from("<I", head)[0] == _EROFS_MAGIC:
        return "erofs"
    if len(head) >= 58 and struct.unpack_from("<H", head, 56)[0] == _EXT4_MAGIC:
        return "ext4"
    raise BadRequest(f"{file.name} is not a block image: neither EROFS nor ext4")


@contextmanager
def attach_loop(file: Path, *, writable: bool = False) -> Iterator[str]:
    """A loop device over `file`, by path; read-only unless `writable`. It is released when the block is left and
    nothing has mounted it, or else with the last mount."""
    backing = os.open(file, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        device, path = _configure_free(backing, _LO_AUTOCLEAR if writable else _LO_READ_ONLY | _LO_AUTOCLEAR)
    finally:
        os.close(backing)
    try:
        yield path
    finally:
        os.close(device)


@contextmanager
def held_loop(file: Path) -> Iterator[str | None]:
    """The loop device over `file`, by path, or None. It stays over this file until the block is left: a device whose
    last mount ends is let go at once, and may be over another file before a caller that knows its path comes to use
    it."""
    held = _hold(file)
    if held is None:
        yield None
        return
    opened, path = held
    try:
        yield path
    finally:
        os.close(opened)


def _hold(file: Path) -> tuple[int, str] | None:
    for path in (device for device, backing in loops(file.parent) if backing == file):
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):  # it is let go just now
                raise
            continue
        if (path, file) in loops(file.parent):
            return opened, path
        os.close(opened)
    return None


def loops(below: Path) -> list[tuple[str, Path]]:
    """The loop devices over files below a path, each with its file."""
    found = []
    for backing in sorted(_SYS_BLOCK.glob("loop*/loop/backing_file")):
        with suppress(OSError):  # detached meanwhile
            file = Path(backing.read_text().strip())
            if file.is_relative_to(below):
                found.append((f"/dev/{backing.parts[-3]}", file))
    return found


def detach_loop(device: str) -> None:
    """Let a loop device go of its file, once its last mount is gone. No error when the device has no file."""
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _LOOP_CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    finally:
        os.close(fd)


def set_capacity(device: str) -> None:
    """Let a loop device be as large as its file is now."""
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _LOOP_SET_CAPACITY)
    finally:
        os.close(fd)


def _configure_free(backing: int, flags: int) -> tuple[int, str]:
    """Claim a free device; another process may be faster, so try again with the next."""
    for _ in range(_LOOP_MAJOR_TRIES):
        path = f"/dev/loop{_free_number()}"
        device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, _LOOP_CONFIGURE, _loop_config(backing, flags))
            return device, path
        except OSError as error:
            os.close(device)
            if error.errno != errno.EBUSY:
                raise
    raise OSError(errno.EBUSY, "no free loop device")


def _free_number() -> int:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)


def _loop_config(backing: int, flags: int) -> bytes:
    """struct loop_config: the file, the default block size, a loop_info64 with only its flags set, 64 spare bytes."""
    info = bytearray(_LOOP_INFO64_SIZE)
    struct.pack_into("=I", info, _LO_FLAGS_OFFSET, flags)
    return struct.pack("=II", backing, 0) + bytes(info) + bytes(64)
