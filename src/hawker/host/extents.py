"""Where two files that share blocks differ, by where their bytes lie on the disk (FIEMAP): nothing is read.

A block that a file has is never written in place while another file has it too, so what lies at the same place in both
is the same. Invariant: what is called equal is equal. Whatever is not certain (another file system, a block that only
one of them has, one that is compressed, within metadata, reserved or not yet on the disk) is called different.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hawker.host.unreadable import FileRange, joined
from hawker.value_object import ValueObject

_libc = ctypes.CDLL(None, use_errno=True)
_FIEMAP, _FSGETXATTR = 0xC020660B, 0x801C581F
_SYNC = 0x1
LAST, _SHARED = 0x1, 0x2000
_REALTIME = 0x1  # in XFS, of a file whose places are those of another disk
_KNOWN = frozenset({0x58465342, 0x9123683E})
"""Numbers of the file systems XFS and Btrfs: there a place is one of the whole file system. Elsewhere it may be one of
several disks."""

_HEAD, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_AT_ONCE = 512
MOST_EXTENTS = 1 << 14
"""The most extents that are looked up in one range of one file: a range in more pieces is read sooner than looked
up."""


class Extent(ValueObject, frozen=True):
    """A part of a file that lies in one piece on the disk."""

    start: int
    """The offset of its first byte in the file."""
    end: int
    """The offset in the file of the byte behind its last one."""
    shift: int | None
    """The bytes from `start` to its place on the disk, as the caller counts them; None when the place says nothing of
    the content."""


class SharedFiles:
    """Two open files, to neither of which anybody writes. `alike` says whether their places can be compared at all."""

    def __init__(self, one: int, other: int) -> None:
        self._one = one
        self._other = other
        self.alike = os.fstat(one).st_dev == os.fstat(other).st_dev and _is_known(one) and _is_known(other)

    def differing(self, start: int, count: int) -> Sequence[FileRange]:
        """The ranges in which the files may differ, in order; the rest is equal. Raises `OSError`."""
        whole = (FileRange(start, count),) if count else ()
        if not self.alike:
            return whole
        there, here = _extents(self._other, start, count), _extents(self._one, start, count)
        if here is None or there is None or there != _extents(self._other, start, count):
            return whole  # in too many pieces, or somebody is moving them (defragmentation, a balance)
        return joined(differing(here, there, start, start + count))


def tells_places(file: Path) -> bool:
    """Whether the file system of this file tells places by which its files can be compared."""
    with file.open("rb") as opened:
        return _is_known(opened.fileno())


def _is_known(fd: int) -> bool:
    return _filesystem_of(fd) in _KNOWN and not _attributes_of(fd) & _REALTIME


def _filesystem_of(fd: int) -> int:
    """Its number (`statfs(2)`), the first word of the answer."""
    answer = ctypes.create_string_buffer(256)
    if _libc.fstatfs(fd, answer) != 0:
        raise OSError(ctypes.get_errno(), "the file system cannot be told")
    return ctypes.c_ulong.from_buffer(answer).value & 0xFFFFFFFF


def _attributes_of(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, _FSGETXATTR, bytes(28))[:4], "little")


def _extents(fd: int, start: int, count: int) -> list[Extent] | None:
    """What is stored of the range, in order; what lies one behind the other in the file and on the disk is one. None
    when it is in too many pieces, or told out of order."""
    found = list[Extent]()
    for seen, each in enumerate(told_extents(fd, start, start + count, _shared_shift), start=1):
        last = found[-1] if found else None
        if seen > MOST_EXTENTS or (last is not None and each.start < last.end):
            return None
        if last is not None and last.end == each.start and last.shift == each.shift:
            found[-1] = Extent(last.start, each.end, last.shift)
        else:
            found.append(each)
    return found


def told_extents(fd: int, at: int, end: int, shift_of: Callable[[int, int, int], int | None]) -> Iterator[Extent]:
    """The extents as the kernel tells them, cut to the range. `shift_of` is called with a place in the file, a place on
    the disk, and flags."""
    buffer = bytearray(_HEAD.size + _AT_ONCE * _EXTENT.size)
    told = _AT_ONCE
    while at < end and told == _AT_ONCE:
        _HEAD.pack_into(buffer, 0, at, end - at, _SYNC, 0, _AT_ONCE, 0)
        fcntl.ioctl(fd, _FIEMAP, buffer)
        told, begun = _HEAD.unpack_from(buffer)[3], at
        for number in range(told):
            logical, physical, length, flags = _EXTENT.unpack_from(buffer, _HEAD.size + number * _EXTENT.size)
            shift = shift_of(logical, physical, flags)
            first, at = max(begun, logical), min(end, logical + length)
            if first < at:
                yield Extent(first, at, shift)
        if at <= begun:
            return


def _shared_shift(logical: int, physical: int, flags: int) -> int | None:
    return physical - logical if flags & ~LAST == _SHARED else None


def differing(one: Sequence[Extent], other: Sequence[Extent], start: int, end: int) -> Iterator[FileRange]:
    """The ranges in which two files may differ. Between each two edges of either file's extents: both have a hole, or
    both have the same place, or they may differ."""
    edges = sorted({start, end} | {edge for each in (*one, *other) for edge in (each.start, each.end)})
    ones, others = _at(one, edges), _at(other, edges)
    for begin, until, here, there in zip(edges, edges[1:], ones, others, strict=False):
        same = here is there is None or (
            here is not None and there is not None and here.shift is not None and here.shift == there.shift
        )
        if not same:
            yield FileRange(begin, until - begin)


def _at(extents: Sequence[Extent], edges: Sequence[int]) -> Iterator[Extent | None]:
    """What is stored from each edge on: None for a hole."""
    left, current = iter(extents), None
    upcoming = next(left, None)
    for edge in edges:
        if current is not None and current.end <= edge:
            current = None
        if upcoming is not None and upcoming.start <= edge:
            current, upcoming = upcoming, next(left, None)
        yield current
