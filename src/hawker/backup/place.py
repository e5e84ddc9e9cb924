"""Where a repository's objects are, as bytes: each goes through a file in `scratch`, which nobody else uses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from hawker.archive.backend import ArchiveBackend
from hawker.archive.failure import of_os
from hawker.archive.pack import owned
from hawker.fair.threads import Pool, in_thread


class BackupPlace:
    """Every call raises what `backend` raises, and `Unavailable` for a disk that does not take what is on its way."""

    def __init__(self, backend: ArchiveBackend, scratch: Path) -> None:
        self.backend = backend
        self._scratch = scratch
        rmtree(scratch, ignore_errors=True)  # what a process that was killed has left

    @property
    def name(self) -> str:
        return self.backend.name

    async def get(self, key: str, most_bytes: int) -> bytes | None:
        """The bytes under a key; None for no such key. Raises `ArchiveDamaged` for more than `most_bytes`."""
        async with self.room() as room:
            file = room / "object"
            if not await self.backend.get(key, file, most_bytes):
                return None
            return await in_thread(Pool.ARCHIVE, file.read_bytes)

    async def put(self, key: str, data: bytes) -> None:
        """Writes bytes under a key. They take the place of what is there all at once."""
        async with self.room() as room:
            file = room / "object"
            await in_thread(Pool.ARCHIVE, _write, file, data)
            await self.backend.put(key, file)

    async def put_new(self, key: str, data: bytes) -> None:
        """Writes bytes under a key; what is there stays."""
        async with self.room() as room:
            file = room / "object"
            await in_thread(Pool.ARCHIVE, _write, file, data)
            await self.backend.put_new(key, file)

    @asynccontextmanager
    async def room(self) -> AsyncIterator[Path]:
        """A context with a directory for one transfer."""
        try:
            room = Path(await in_thread(Pool.ARCHIVE, self._make_room))
        except OSError as error:
            raise of_os(str(self._scratch), error) from error
        try:
            yield room
        finally:
            rmtree(room, ignore_errors=True)

    def _make_room(self) -> str:
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        return mkdtemp(dir=self._scratch)


def _write(file: Path, data: bytes) -> None:
    with owned(file) as stream:
        stream.write(data)
