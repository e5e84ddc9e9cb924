"""Where a tree is staged before it becomes a block image: memory (tmpfs) if there is room, else the data directory.

A staging area is a directory with mode 0700 of this user: set-id programs of an image are in it, and no user of the
host may reach them. Areas that a crash left behind are removed by `clear`.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hawker.fair.threads import Pool, in_thread
from hawker.value_object import ValueObject

_SHARED_MEMORY = Path("/dev/shm")
_TMPFS_MAGICS = ("tmpfs", "ramfs")
_MEMORY_SHARE = 4  # a quarter of what is free


class StagingPlace(ValueObject, frozen=True):
    """`budget` is how many bytes of content may be staged there; `prefix` is what names of areas there begin with."""

    directory: Path
    budget: int
    prefix: str = "area-"


def mark_of(disk: Path) -> str:
    """What the names of a cache's areas in shared memory bear."""
    return hashlib.sha256(os.fsencode(disk.absolute())).hexdigest()[:16]


class Staging:
    """The places of one image cache. `tmp` names a tmpfs to use; without it, shared memory is used where it is one."""

    def __init__(self, disk: Path, tmp: Path | None = None) -> None:
        self.disk = disk
        self._memory = tmp or _SHARED_MEMORY
        self._prefix = f"hawker-{os.geteuid()}-{mark_of(disk)}-"

    def places(self, most: int, *, memory: bool = True) -> Iterator[StagingPlace]:
        """The best first. The last one takes all that is allowed, `most`. Without `memory` it is the only one: for what
        is staged as long as somebody's download takes."""
        room = self._memory_room() if memory else 0
        if room and os.access(self._memory, os.W_OK | os.X_OK):
            yield StagingPlace(self._memory, min(room, most), self._prefix)
        yield StagingPlace(self.disk, most)

    def clear(self) -> None:
        """Remove all areas. Only while nothing is being staged. Shared memory is open to all users, so what bears our
        prefix there may be another's, and is left alone."""
        for directory in (*self._memory.glob(f"{self._prefix}*"), self.disk):
            if _is_own(directory):
                shutil.rmtree(directory, ignore_errors=True)
        self.disk.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _memory_room(self) -> int:
        if _filesystem_of(self._memory) not in _TMPFS_MAGICS:
            return 0
        found = os.statvfs(self._memory)
        return min(found.f_bavail * found.f_frsize // 2, available_memory() // _MEMORY_SHARE)


@asynccontextmanager
async def area(parent: Path, prefix: str = "area-") -> AsyncIterator[Path]:
    """A fresh directory that is gone afterwards, whatever is in it then."""
    path = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
    try:
        yield path
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(Pool.IMAGES, lambda: shutil.rmtree(path, ignore_errors=True))


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _filesystem_of(path: Path) -> str:
    """The type of the filesystem that is mounted nearest above `path`."""
    best, kind = "", ""
    resolved = str(path.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point, fstype = line.split(" ")[1:3]
        above = point == "/" or resolved == point or resolved.startswith(point + "/")
        if above and len(point) >= len(best):
            best, kind = point, fstype
    return kind


def available_memory() -> int:
    """Bytes that can be taken without swapping, as the kernel estimates."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
