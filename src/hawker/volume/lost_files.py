"""Which files of a volume lost something, for the person who has to decide about it. What is asked is a filesystem of
which a part is zeros, and perhaps one that was made to deceive: debugfs reads it as nobody, with bounds.

Not in here: what counts as lost. The names help; the list of bytes is what is true.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from hawker.errors import NotServed
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4
from hawker.host.ext4 import read_superblock
from hawker.host.unreadable import FileRange
from hawker.value_object import ValueObject

MOST_BLOCKS = 512
"""The most blocks that are asked about: debugfs compares each with each block of the filesystem."""

MOST_FILES = 200
LONGEST_NAME = 500
_FIRST_INODE = 11  # those before it are the filesystem's own
_ROW = re.compile(r"^([0-9]+)\t(.*)$", re.MULTILINE)


class LostFiles(ValueObject, frozen=True):
    """`names` are paths in the volume; `unnamed` says why there may be more, and is empty when there are not."""

    names: tuple[str, ...] = ()
    unnamed: str = ""


def blocks_of(lost: Sequence[FileRange], block_size: int, most: int = MOST_BLOCKS) -> tuple[list[int], int]:
    """Blocks of the filesystem that lie in these ranges, in order: evenly chosen when there are more than `most`; and
    how many there are."""
    spans = [range(each.offset // block_size, -(-each.end // block_size)) for each in lost]
    total = sum(map(len, spans))
    step = -(-total // most) or 1
    return sorted({block for span in spans for block in span[::step]})[:most], total


def owners_in(said: str) -> dict[int, int]:
    """The inode of each block that has one, as `icheck` answered."""
    return {int(block): int(inode) for block, inode in _ROW.findall(said) if inode.isdecimal()}


def names_in(said: str) -> tuple[str, ...]:
    """The names of files, as `ncheck` answered. A name is whatever a tenant chose: what cannot be printed is
    escaped."""
    found = {f"/{name.lstrip('/')}"[:LONGEST_NAME] for _, name in _ROW.findall(said) if name != "Pathname"}
    return tuple(sorted(map(_printable, found)))[:MOST_FILES]


def _printable(name: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in name)


async def lost_files(file: Path, lost: Sequence[FileRange]) -> LostFiles:
    """The lost files of a filesystem that nobody has mounted. Raises `Unavailable` while an earlier daemon's tool works
    on the file, `OSError`."""
    found = await in_thread(Pool.DISKS, read_superblock, file)
    if found is None:
        return LostFiles((), "what says how the filesystem is laid out is lost, too")
    blocks, total = blocks_of(lost, found.block_size)
    try:
        owners = owners_in(await ext4.ask_debugfs(file, f"icheck {' '.join(map(str, blocks))}"))
        inodes = sorted({inode for inode in owners.values() if inode >= _FIRST_INODE})[:MOST_FILES]
        names = names_in(await ext4.ask_debugfs(file, f"ncheck {' '.join(map(str, inodes))}")) if inodes else ()
    except (NotServed, TimeoutError) as error:
        return LostFiles((), str(error) or "the search took too long")
    return LostFiles(names, _unnamed(blocks, total, owners, inodes, names))


def _unnamed(
    blocks: Sequence[int], total: int, owners: dict[int, int], inodes: Sequence[int], names: Sequence[str]
) -> str:
    free = sum(owners.get(block, 0) < _FIRST_INODE for block in blocks)
    said = []
    if len(blocks) < total:
        said.append(f"{len(blocks)} of {total} lost blocks were looked at")
    if len(names) < len(inodes):
        said.append(f"{len(inodes) - len(names)} files have no name that is there still")
    if free:
        said.append(f"{free} blocks are of no file: free, or the filesystem's own, with which whole files may be gone")
    return "; ".join(said)
