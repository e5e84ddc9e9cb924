"""Reading a file on a disk that is dying. What cannot be read is tried three times, then sector by sector past the page
cache, so that no more is given up than has to be.

Invariant: nothing here makes up a byte. Zeros come only for what the caller knows as lost already; all else that cannot
be read is raised, with where it is.
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
_OF_THE_DISK = frozenset(
    {errno.EIO, errno.ENODATA, errno.EREMOTEIO, errno.EILSEQ, errno.EBADMSG}
)  # what block devices say of a sector that they cannot read


class FileRange(ValueObject, frozen=True, order=True):
    offset: int
    count: int

    @property
    def end(self) -> int:
        return self.offset + self.count


class UnreadableBytes(OSError):
    """`lost` is in order, and begins with the first byte that could not be read; what lies behind it was not tried."""

    def __init__(self, file: Path, lost: Sequence[FileRange]) -> None:
        super().__init__(errno.EIO, f"byte {lost[0].offset} cannot be read", str(file))
        self.lost = tuple(lost)

    @property
    def offset(self) -> int:
        return self.lost[0].offset


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
    """Whether it says that a sector cannot be read."""
    return error.errno in _OF_THE_DISK


def _never() -> bool:
    return False


class PatientReader:
    """Of one open file. `known` are losses, in order: they are tried once more, and are zeros if they still cannot be
    read. `is_enough` is asked after each sector that cannot be read: whether to come to an end."""

    def __init__(
        self, file: Path, fd: int, known: Sequence[FileRange] = (), is_enough: Callable[[], bool] = _never
    ) -> None:
        self._file = file
        self.fd = fd
        self._known = known
        self._begins = [each.offset for each in known]
        self._is_enough = is_enough

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
        """As far as the first sector that cannot be read, or the end of those that are known as lost."""
        found, lost = bytearray(), list[FileRange]()
        with _past_the_cache(self._file, self.fd) as read_sector:
            for at in range(offset - offset % SECTOR_BYTES, offset + count, SECTOR_BYTES):
                known = self._is_known(at)
                data = _tried(read_sector, at, 1 if known else TRIES)
                if data is None and known and not lost:
                    data = bytes(SECTOR_BYTES)
                    found += _within(data, at, offset, count)
                    if self._is_enough():
                        break
                elif data is None:
                    lost.append(FileRange(at, SECTOR_BYTES))
                    if found or self._is_enough():
                        break
                elif lost:
                    break
                else:
                    found += _within(data, at, offset, count)
        if lost and not found:
            raise UnreadableBytes(self._file, joined(lost))
        return bytes(found)

    def _is_known(self, sector: int) -> bool:
        place = bisect_right(self._begins, sector) - 1
        return place >= 0 and sector + SECTOR_BYTES <= self._known[place].end


def _within(data: bytes, at: int, offset: int, count: int) -> bytes:
    return data[max(0, offset - at) : max(0, offset + count - at)]


def _tried(read_sector: Callable[[int], bytes], at: int, tries: int) -> bytes | None:
    for _ in range(tries):
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
