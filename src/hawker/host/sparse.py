"""Copying a large file with holes: by reference where the file system can (FICLONE), else only the bytes that are
stored, in bounded pieces.

A copy has two halves, so that what holds the source still may end after the first: `draft` puts the bytes into a file
that counts for nothing yet; `publish` makes it durable under its name. So a name is a whole copy or is not there.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile

from anyio import from_thread

from hawker.fair.threads import Pool, in_thread
from hawker.host.unreadable import PatientReader, is_of_the_disk
from hawker.value_object import ValueObject

PIECE_BYTES = 8 << 20
SECTOR_BYTES = 512  # of `st_blocks`, whatever the file system's own blocks are
_FICLONE = 0x40049409
_NO_REFLINK = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM})
_NO_RANGE = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


class Way(StrEnum):
    """The way in which a file was copied: sharing the blocks, or with blocks of its own."""

    REFLINK = "reflink"
    COPY = "copy"


class Drafted(ValueObject, frozen=True):
    """A draft of a copy. `allocated_bytes` is how many bytes the draft takes of the disk, or shares with its source."""

    way: Way
    allocated_bytes: int


async def draft(source: Path, target: Path) -> Drafted:
    """Copy `source` to `target` in a thread, over what an earlier try left. When cancelled it ends within a piece, and
    nothing is left. Raises `OSError`, on a full disk for example, and `UnreadableBytes` for bytes that the source's
    disk cannot read."""
    return await in_thread(Pool.HOST, draft_here, source, target)


async def publish(drafted: Path, name: Path) -> None:
    """Make a draft durable, under its name. A draft that is gone was published before."""
    await in_thread(Pool.HOST, _publish, drafted, name)


def draft_file(name: Path) -> Path:
    """The path of the draft of a file that is to have this name."""
    return name.with_name(f"{name.name}.draft")


def allocated_bytes(file: Path) -> int:
    """The bytes that a file takes of the disk."""
    return file.stat().st_blocks * SECTOR_BYTES


def shares_blocks(directory: Path) -> bool:
    """Whether copies in this directory share the blocks of their source, which costs neither time nor room."""
    with TemporaryFile(dir=directory) as source, TemporaryFile(dir=directory) as copy:
        source.write(bytes(4096))
        source.flush()
        return _reflink(source.fileno(), copy.fileno())


def clone(source: Path, target: Path) -> bool:
    """Make a new file with the source's blocks as they are at one moment. Returns whether the file system can do
    that."""
    with source.open("rb") as file, target.open("xb") as made:
        return _reflink(file.fileno(), made.fileno())


def draft_here(source: Path, target: Path) -> Drafted:
    """Do what `draft` does in the calling thread, which must be one of anyio's."""
    target.unlink(missing_ok=True)
    made = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with source.open("rb") as file:
            way = _fill(PatientReader(source, file.fileno()), made)
        return Drafted(way, os.fstat(made).st_blocks * SECTOR_BYTES)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    finally:
        os.close(made)


def _fill(source: PatientReader, target: int) -> Way:
    if _reflink(source.fd, target):
        return Way.REFLINK
    size = os.fstat(source.fd).st_size
    os.ftruncate(target, size)
    for offset, length in stored_pieces(source.fd, size):
        _copy_range(source, target, offset, length)
    return Way.COPY


def _reflink(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_REFLINK:
            raise
        return False
    return True


def stored_pieces(source: int, size: int, begin: int = 0) -> Iterator[tuple[int, int]]:
    """The (offset, length) of each piece of the bytes that are stored from `begin` on. Where holes cannot be told, that
    is all of them."""
    end = begin
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # nothing but a hole is left
        end = min(size, os.lseek(source, start, os.SEEK_HOLE))
        for offset in range(start, end, PIECE_BYTES):
            yield offset, min(PIECE_BYTES, end - offset)


def _copy_range(source: PatientReader, target: int, offset: int, length: int) -> None:
    """In the kernel where it can. A source that was made shorter meanwhile ends it."""
    while length > 0:
        from_thread.check_cancelled()
        copied = _copy_some(source, target, offset, length)
        if not copied:
            return
        offset, length = offset + copied, length - copied


def _copy_some(source: PatientReader, target: int, offset: int, length: int) -> int:
    try:
        return os.copy_file_range(source.fd, target, length, offset, offset)
    except OSError as error:
        if error.errno not in _NO_RANGE and not is_of_the_disk(error):
            raise
    return os.pwrite(target, source.read_some(offset, length), offset)


def _publish(drafted: Path, name: Path) -> None:
    with suppress(FileNotFoundError):
        _sync(drafted, os.O_RDONLY)
        drafted.rename(name)
    for directory in (name.parent, name.parent.parent):  # which may be as new as the file
        _sync(directory, os.O_RDONLY | os.O_DIRECTORY)
    name.stat()  # neither here nor there: the caller must know


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
