"""What the store's bytes are on, and what is left of them after a crash: the twin in memory, or a real SQLite file.

A killed process leaves every commit that it made; a power cut may take those after the last durable one, from the end.
"""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hawker.store.contract import Durability, Store
from hawker.store.memory_store import MemoryStore
from hawker.store.sqlite import SqliteStore
from hawker.store.writer import Job, StoreWriter

_HEADER, _FRAME = 32, 24  # of a WAL file and of each page in it, in bytes; sqlite.org/fileformat.html, part 4


class CrashableStore(Protocol):
    @property
    def store(self) -> Store:
        """The one of the current life."""

    def crash(self, kept: float) -> None:
        """The next life's store: all that is durable, and this share, 0 to 1, of the commits that are not."""

    def close(self) -> None: ...


class CrashableMemory:
    """The store in memory."""

    def __init__(self) -> None:
        self._twin = MemoryStore()

    @property
    def store(self) -> Store:
        return self._twin

    def crash(self, kept: float) -> None:
        self._twin = self._twin.crash(round(self._twin.pending * kept))

    def close(self) -> None:
        """Nothing is held."""


class LoopWriter(StoreWriter):
    """Commits in the loop's own thread, all that was submitted in one of its turns together: so the order of everything
    is the same each time. `durable` is called after each group that was to be durable."""

    def __init__(
        self,
        commit: Callable[[list[Job]], None],
        idle: Callable[[], None],
        finish: Callable[[], None],
        *,
        durable: Callable[[], None],
    ) -> None:
        self._commit, self._idle, self._finish = commit, idle, finish
        self._durable = durable
        self._waiting: list[Job] = []
        self._closed = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(job)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._finish()

    def _flush(self) -> None:
        group, self._waiting = self._waiting, []
        if self._closed:
            return
        self._commit(group)
        if any(job.durability is Durability.DURABLE for job in group):
            self._durable()
        for job in group:
            job.settle()
        self._idle()


class CrashableFile:
    """A real store below `directory`. Each life has a copy of the file as the crash left it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lives = 0
        self._synced = _Log(b"", 0)
        self._open()

    @property
    def store(self) -> Store:
        return self._store

    def crash(self, kept: float) -> None:
        old, old_log, log = self._path, self._log_path(), _read_log(self._log_path(), self._synced)
        first = self._synced.frames if log.salts == self._synced.salts else log.frames  # begun anew: all was copied
        frames = first + round((log.frames - first) * kept)
        self._lives += 1
        shutil.copyfile(old, self._path)
        with old_log.open("rb") as reading:
            self._log_path().write_bytes(reading.read(_HEADER + frames * (_FRAME + _page_bytes(old_log))))
        self._writer.close()
        old.unlink()
        self._open()

    def close(self) -> None:
        self._writer.close()

    @property
    def _path(self) -> Path:
        return self._directory / f"life{self._lives}.db"

    def _log_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    def _open(self) -> None:
        self._store = SqliteStore(self._path, writer=self._new_writer)
        self._synced = _Log(b"", 0)
        self._note_durable()

    def _new_writer(
        self, commit: Callable[[list[Job]], None], idle: Callable[[], None], finish: Callable[[], None]
    ) -> StoreWriter:
        self._writer = LoopWriter(commit, idle, finish, durable=self._note_durable)
        return self._writer

    def _note_durable(self) -> None:
        self._synced = _read_log(self._log_path(), self._synced)


class _Log:
    """How far a WAL file is filled in its current round, which its salts name."""

    def __init__(self, salts: bytes, frames: int) -> None:
        self.salts, self.frames = salts, frames


def _page_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(_HEADER)[8:12], "big")


def _read_log(path: Path, known: _Log) -> _Log:
    """Count the frames of the round, on from those that are known."""
    if not path.exists():
        return _Log(b"", 0)
    with path.open("rb") as file:
        header = file.read(_HEADER)
        salts, size = header[16:24], int.from_bytes(header[8:12], "big")
        frames = known.frames if known.salts == salts else 0
        while True:
            file.seek(_HEADER + frames * (_FRAME + size))
            frame = file.read(_FRAME)
            if len(frame) < _FRAME or frame[8:16] != salts:
                return _Log(salts, frames)
            frames += 1
