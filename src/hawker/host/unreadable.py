"""Reading a file on a disk that is dying. What cannot be read is tried three times, then sector by sector past the page
cache, so that the first byte that is lost can be named.

Invariant: nothing here makes up a byte.
"""

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECTOR_BYTES = 4096
TRIES = 3
_OF_THE_DISK = frozenset(
    {errno.EIO, errno.ENODATA, errno.EREMOTEIO, errno.EILSEQ, errno.EBADMSG}
)  # what block devices say of a sector that they cannot read


class UnreadableBytes(OSError):
    """`offset` is the first byte of the sector that cannot be read; what lies behind it was not tried."""

    def __init__(self, file: Path, offset: int) -> None:
        super().__init__(errno.EIO, f"byte {offset} cannot be read", str(file))
        self.offset = offset


def is_of_the_disk(error: OSError) -> bool:
    """Whether it says that a sector cannot be read."""
    return error.errno in _OF_THE_DISK


class PatientReader:
    """Of one open file."""

    def __init__(self, file: Path, fd: int) -> None:
        self._file = file
        self.fd = fd

    def read(self, offset: int, count: int) -> bytes:
        """All of it, as far as the file goes. Raises `UnreadableBytes`."""
        parts = list[bytes]()
        while count > 0 and (part := self.read_some(offset, count)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_some(self, offset: int, count: int) -> bytes:
        """At least one byte, unless the file ends; all of it, unless some cannot be read. Raises `UnreadableBytes` only
        for what is at `offset` itself."""
        for _ in range(TRIES):
            try:
                return read_all(self.fd, offset, count)
            except OSError as error:
                if not is_of_the_disk(error):
                    raise
        return self._by_sectors(offset, count)

    def _by_sectors(self, offset: int, count: int) -> bytes:
        """As far as the first that cannot be read."""
        found = bytearray()
        with _past_the_cache(self._file, self.fd) as read_sector:
            for at in range(offset - offset % SECTOR_BYTES, offset + count, SECTOR_BYTES):
                data = _tried(read_sector, at)
                if data is None and not found:
                    raise UnreadableBytes(self._file, at)
                if data is None:
                    break
                found += data[max(0, offset - at) : max(0, offset + count - at)]
        return bytes(found)


def _tried(read_sector: Callable[[int], bytes], at: int) -> bytes | None:
    for _ in range(TRIES):
        try:
            return read_sector(at)
        except OSError as error:
            if not is_of_the_disk(error):
                raise
    return None


@contextmanager
def _past_the_cache(file: Path, fd: int) -> Iterator[Callable[[int], bytes]]:
    """Reads one sector from the disk; where the file system cannot do that (O_DIRECT), after the cache has let go."""
    direct, room = fd, mmap.mmap(-1, SECTOR_BYTES)  # aligned, as O_DIRECT wants it
    with suppress(OSError):
        direct = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)

    def read_sector(at: int) -> bytes:
        if direct == fd:
            os.posix_fadvise(fd, at, SECTOR_BYTES, os.POSIX_FADV_DONTNEED)
        return room[: os.preadv(direct, [room], at)]

    try:
        yield read_sector
    finally:
        if direct != fd:
            os.close(direct)
        room.close()


def read_all(fd: int, offset: int, count: int) -> bytes:
    """As many bytes as there are. Raises `OSError`."""
    parts = list[bytes]()
    while count > 0 and (part := os.pread(fd, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
