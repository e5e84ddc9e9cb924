"""Empty ext4 filesystems in files, one of each kind and size, made once: a disk for a machine is a copy of the few
blocks that such a file stores, or shares them where the host can. mke2fs would take tens of milliseconds each time.

Where many sizes are asked for, those that were used last stay. All are whole or not there.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4, sparse

LEAST_MIB = 16
"""A smaller ext4 has no room for its own journal."""

_KEPT = 16
_DRAFT = "draft-"
_MIB = 1 << 20


class Ext4Templates:
    """Below one directory: `ext4-MIB`, and `bare-MIB` without a journal."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._drafts: set[str] = set()  # of this process; all others are what a crash left

    async def of(self, size_mib: int, *, journal: bool = True) -> Path:
        """Whoever comes while it is being made makes one of his own, and one of them counts."""
        template = self._directory / f"{'ext4' if journal else 'bare'}-{size_mib}"
        try:
            os.utime(template)  # used last
        except FileNotFoundError:
            await self._make(template, size_mib, journal=journal)
        return template

    async def _make(self, template: Path, size_mib: int, *, journal: bool) -> None:
        draft = self.draft()
        try:
            os.truncate(draft, size_mib * _MIB)
            await ext4.make_filesystem(draft, journal=journal)
            await sparse.publish(draft, template)
        finally:
            self.let_go(draft)

    def draft(self) -> Path:
        """An empty file beside them that is not tidied away before it is let go of, or this process ends."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=_DRAFT, dir=self._directory)
        os.close(fd)
        self._drafts.add(name)
        return Path(name)

    def let_go(self, draft: Path) -> None:
        self._drafts.discard(str(draft))

    async def tidy(self) -> None:
        """Remove those that were not used for long, and what a crash left of one."""
        await in_thread(Pool.HOST, self._tidy)

    def _tidy(self) -> None:
        whole = [file for kind in ("ext4", "bare") for file in self._directory.glob(f"{kind}-*")]
        for file in sorted(whole, key=_used_at)[:-_KEPT]:
            file.unlink(missing_ok=True)
        for file in self._directory.glob(f"{_DRAFT}*"):
            if str(file) not in self._drafts:
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all; for a node that is not coming back."""
        for file in list(self._directory.iterdir()) if self._directory.is_dir() else ():
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self._directory.rmdir()


def _used_at(file: Path) -> float:
    with suppress(FileNotFoundError):
        return file.stat().st_mtime
    return 0.0
