"""Changed block tracking of a file to which programs write directly, where files share no blocks (ext4): by the
requests that the disk below its file system has completed, and by where the file's blocks lie on it (FIEMAP).

Invariant: a block that changed was written where it lies, which the trace of the disk tells, or came to lie elsewhere,
which two looks at the places tell. Both are only known of what has left the page cache, so who asks has it written out.
What goes around the cache (O_DIRECT) ends at the disk a moment before the cache forgets what it had: beside a program
that writes so, the file has to be read around it, too. No VMM and no loop device of ours writes so.
"""

import os
import stat
from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from pathlib import Path

from hawker.host.changed_blocks import SECTOR_BYTES, ChangedBlocks, blocks_of, track
from hawker.host.extents import LAST, Extent, differing, told_extents

_UNWRITTEN, _MERGED = 0x800, 0x1000
_END = (1 << 63) - 1
MOST_EXTENTS = 1 << 16
"""The most extents that a file may have; of a file with more nothing is told."""


class DiskBlocks(ChangedBlocks):
    """The changed blocks of `file`, which lies on the disk `device`, whose file system begins at the byte `begins`.
    Raises `OSError`."""

    def __init__(self, root: int, ring: Path, device: str, file: Path, begins: int) -> None:
        self._opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        self._begins = begins
        try:
            self._extents = self._told()
            self._places = self._on_disk()
            super().__init__(root, ring, device, file)
        except BaseException:
            os.close(self._opened)
            raise

    def close(self) -> None:
        super().close()
        os.close(self._opened)

    def _settle(self) -> None:
        os.fsync(self._opened)

    def _look(self) -> None:
        """What lies elsewhere than at the last look has changed."""
        before, self._extents = self._extents, self._told()
        self.lost = self.lost or len(self._extents) > MOST_EXTENTS
        if not self.lost:
            self._places = self._on_disk()
            end = max((each.end for each in (*before[-1:], *self._extents[-1:])), default=0)
            for each in differing(before, self._extents, 0, end):
                self._see(blocks_of(each.offset // SECTOR_BYTES, each.count // SECTOR_BYTES))

    def _told(self) -> list[Extent]:
        return list(islice(told_extents(self._opened, 0, _END, _shift), MOST_EXTENTS + 1))

    def _on_disk(self) -> list[tuple[int, int, int]]:
        """The first sector on the disk, in the file, and how many, in the order of the disk."""
        return sorted(
            (
                (self._begins + each.start + (each.shift >> 1)) // SECTOR_BYTES,
                each.start // SECTOR_BYTES,
                (each.end - each.start) // SECTOR_BYTES,
            )
            for each in self._extents
            if each.shift is not None
        )

    def _written(self, sector: int, count: int) -> Iterable[int]:
        """Of the file as it lay at the last look: what has come to lie elsewhere since, the next one tells."""
        begin = max(0, bisect_right(self._places, sector, key=itemgetter(0)) - 1)
        for place in range(begin, len(self._places)):
            on_disk, in_file, length = self._places[place]
            if on_disk >= sector + count:
                return
            first, end = max(sector, on_disk), min(sector + count, on_disk + length)
            if first < end:
                yield from blocks_of(in_file + first - on_disk, end - first)

    def _is_over(self) -> bool:
        return True


def _shift(logical: int, physical: int, flags: int) -> int | None:
    """Twice the way from the place in the file to that on the disk; one more where the room is only reserved, and reads
    as zeros. None for what is not on the disk yet."""
    if flags & ~(LAST | _UNWRITTEN | _MERGED):
        return None
    return 2 * (physical - logical) + bool(flags & _UNWRITTEN)


def track_on_disk(file: Path, node: str, name: str) -> ChangedBlocks | None:
    """Begin to track the changed blocks of `file`, from now on. None where the disk below the file cannot be told or
    traced: see `track`."""
    found = _disk_of(file)
    if found is None:
        return None
    device, begins = found
    return track(
        device, file, node, name, lambda root, ring, device, file: DiskBlocks(root, ring, device, file, begins)
    )


def _disk_of(file: Path) -> tuple[str, int] | None:
    """The disk on which a file system of ext4 has this file, and the byte at which it begins there. None for one that
    writes data to its journal or around its disk's queue, or lies on several disks or a mapping of them."""
    number = file.stat().st_dev
    try:
        below = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
        options = Path(f"/proc/fs/ext4/{below.name}/options").read_text().split()
        begins = int((below / "start").read_text()) * SECTOR_BYTES if (below / "partition").exists() else 0
    except (OSError, ValueError):
        return None
    whole = below.parent if (below / "partition").exists() else below
    device = Path("/dev") / whole.name
    if "data=journal" in options or any(each.startswith("dax") and each != "dax=never" for each in options):
        return None
    if any((whole / mapping).exists() for mapping in ("dm", "md")) or not device.exists():
        return None
    return (str(device), begins) if stat.S_ISBLK(device.stat().st_mode) else None
