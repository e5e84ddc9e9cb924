"""Reading a file on a disk that is dying. What cannot be read is tried three times, then sector by sector past the page
cache, so that the first byte that is lost can be named.

Invariant: nothing here makes up a byte. Zeros come only for what the caller has noted as lost.
"""

import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hawker.value_object import ValueObject

SECTOR_BYTES = 4096
TRIES = 3
SEARCHED_SECTORS = 16
"""The most sectors in a row that are tried, to be told as lost together."""

_OF_THE_DISK = frozenset(
    {errno.EIO, errno.ENODATA, errno.EREMOTEIO, errno.EILSEQ, errno.EBADMSG}
)  # what block devices say of a sector that they cannot read


class FileRange(ValueObject, frozen=True, order=True):
    """Bytes of a file, from `offset` on."""

    offset: int
    count: int
    """The number of bytes, 1 or more."""

    @property
    def end(self) -> int:
        return self.offset + self.count


class UnreadableBytes(OSError):
    """Some bytes of a file cannot be read. `lost` begins with the first of them, and is of whole sectors; whether bytes
    behind it can be read is not known."""

    def __init__(self, file: Path, lost: FileRange) -> None:
        super().__init__(errno.EIO, f"byte {lost.offset} cannot be read", str(file))
        self.lost = lost

    @property
    def offset(self) -> int:
        return self.lost.offset


def joined(ranges: Iterable[FileRange]) -> tuple[FileRange, ...]:
    """The same bytes, each once, in order, in as few ranges as there can be."""
    found = list[FileRange]()
    for each in sorted(ranges):
        if found and each.offset <= found[-1].end:
            found[-1] = FileRange(found[-1].offset, max(found[-1].end, each.end) - found[-1].offset)
        else:
            found.append(each)
    return tuple(found)


def is_of_the_disk(error: OSError) -> bool:
    """Whether the error says that a sector of the disk cannot be read."""
    return error.errno in _OF_THE_DISK


class PatientReader:
    """Reads one open file. `lost`, in order, are ranges that were noted as lost: they are read as zeros, without the
    disk. None for a caller that takes no loss; for any other the search goes on to the end of the lost bytes there,
    though not far."""

    def __init__(self, file: Path, fd: int, lost: Sequence[FileRange] | None = None) -> None:
        self._file = file
        self.fd = fd
        self._lost = lost or ()
        self._begins = [each.offset for each in self._lost]
        self._searched = 1 if lost is None else SEARCHED_SECTORS

    def read(self, offset: int, count: int) -> bytes:
        """All `count` bytes from `offset` on, as far as the file goes. Raises `UnreadableBytes`."""
        parts = list[bytes]()
        while count > 0 and (part := self.read_some(offset, count)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_some(self, offset: int, count: int) -> bytes:
        """At least one byte, unless the file ends; all `count` bytes, unless some cannot be read. Raises
        `UnreadableBytes` only for the byte at `offset` itself."""
        place = bisect_right(self._begins, offset)
        if place and offset < self._lost[place - 1].end:
            left = os.fstat(self.fd).st_size - offset
            return bytes(max(0, min(count, left, self._lost[place - 1].end - offset)))
        if place < len(self._begins):
            count = min(count, self._begins[place] - offset)
        return self._read_some(offset, count)

    def _read_some(self, offset: int, count: int) -> bytes:
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
                    raise UnreadableBytes(self._file, self._lost_from(read_sector, at, offset + count))
                if data is None:
                    break
                found += data[max(0, offset - at) : max(0, offset + count - at)]
        return bytes(found)

    def _lost_from(self, read_sector: Callable[[int], bytes], first: int, end: int) -> FileRange:
        """With the sectors behind the first that cannot be read either."""
        at = first + SECTOR_BYTES
        while at < min(end, first + self._searched * SECTOR_BYTES) and _tried(read_sector, at) is None:
            at += SECTOR_BYTES
        return FileRange(first, at - first)


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
    """The `count` bytes from `offset` on, or as many as there are. Raises `OSError`."""
    parts = list[bytes]()
    while count > 0 and (part := os.pread(fd, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
