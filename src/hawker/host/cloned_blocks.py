"""Changed block tracking of a file to which programs write directly, where files share blocks: clones of it from two
moments are compared by their places on the disk (`extents`), so nothing is read, and whoever writes need not be asked.

Invariant: a clone is of one moment, and nobody writes to it. So what changed between two clones is told, also what a
program wrote while it ended; and whoever asks what changed and then reads has each block as it is, or is told of it the
next time.
"""

import os
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, spans_of
from hawker.host.extents import SharedFiles
from hawker.host.sparse import allocated_bytes, clone
from hawker.host.unreadable import FileRange

_COMPARED_BYTES = 1 << 30  # at once: of more extents than are looked at in it, all counts as changed


class ClonedBlocks:
    """The changed blocks of one file, from clones of it. `clones` is a directory of the file's own, on its file system;
    it goes with `close`. Nothing is told while the disk has less free space than what the file takes, which every block
    that is written anew may come to take once more, and `floor_bytes` beside it."""

    def __init__(self, file: Path, clones: Path, floor_bytes: int) -> None:
        self._file = file
        self._clones = clones
        self._floor_bytes = floor_bytes
        self._marks = count(1)
        self._kept: dict[int, Path] = {}
        self._first = 0
        self._taking = threading.Lock()
        self._closed = False
        clones.mkdir(parents=True, mode=0o700)

    def since(self, mark: int) -> tuple[int, tuple[BlockRange, ...]] | None:
        """A mark of now, and the blocks that changed since the given mark; 0 for a first mark. None for a mark that is
        not known any more. The first mark, the newest one and the one before it are known."""
        with self._taking:
            if self._closed or not self._has_room():
                return None
            if mark and mark not in self._kept:
                return None
            now = next(self._marks)
            made = self._clones / str(now)
            if not clone(self._file, made):
                return None
            changed = spans_of(_blocks_in(_differing(self._kept[mark], made))) if mark else ()
            self._first = self._first if mark else now
            self._kept[now] = made
            for each in [each for each in self._kept if each not in (self._first, mark, now)]:
                self._kept.pop(each).unlink(missing_ok=True)
            return now, changed

    def empty(self) -> bool:
        """Does nothing: between two marks nothing has to be remembered. False once it is closed."""
        return not self._closed

    def close(self) -> None:
        with self._taking:
            self._closed = True
            remove_clones(self._clones)

    def _has_room(self) -> bool:
        disk = os.statvfs(self._clones)
        return disk.f_bavail * disk.f_frsize >= allocated_bytes(self._file) + self._floor_bytes


def remove_clones(clones: Path) -> None:
    """Remove the directory with its clones, also those that a daemon left when it was killed."""
    if clones.is_dir():
        for each in clones.iterdir():
            each.unlink(missing_ok=True)
        clones.rmdir()


def _differing(earlier: Path, later: Path) -> Iterator[FileRange]:
    with earlier.open("rb") as one, later.open("rb") as other:
        files, size = SharedFiles(one.fileno(), other.fileno()), os.fstat(other.fileno()).st_size
        for start in range(0, size, _COMPARED_BYTES):
            yield from files.differing(start, min(_COMPARED_BYTES, size - start))


def _blocks_in(ranges: Iterator[FileRange]) -> Iterator[int]:
    for each in ranges:
        yield from range(each.offset // BLOCK_BYTES, -(-each.end // BLOCK_BYTES))
