"""Stores that are played over another one: each keeps `store.contract.Store`, and changes some of it.

The disk of `FaultyStore` can be slow, full or failing for a while, and stop for good after a chosen commit; what is
committed is noted in the trace, value by value. What is below is crashable: the twin in memory, or a real SQLite file.
A killed process leaves every commit that it made; a power cut may take those after the last durable one, from the end.
"""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.sim.harness.trace import Speaker, Trace
from hawker.store.contract import Bucket, Durability, Reader, Store, Tx, encode
from hawker.store.memory_store import MemoryStore
from hawker.store.sqlite import SqliteStore
from hawker.store.writer import Job, StoreWriter


class StoreOver:
    """Does what `inner` does; its children write in another way."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.get, self.scan, self.count, self.sizes = inner.get, inner.scan, inner.count, inner.sizes

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._inner.snapshot()

    async def backup(self, target: Path, mark: Callable[[Tx], None] | None = None) -> None:
        await self._inner.backup(target, mark)

    async def close(self) -> None:
        await self._inner.close()


class TxOver:
    """Reads what `tx` reads; its children put, delete and tell of the commit."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.get, self.scan, self.count, self.sizes = tx.get, tx.scan, tx.count, tx.sizes


T = TypeVar("T")
R = TypeVar("R")


class DiskFaults:
    """How the disk is now; it outlives the daemon. Times are the clock's monotonic ones. After `stops_in` more commits
    nobody hears from the store again; while it fails, every commit whose number is a multiple of `fails_every` does."""

    def __init__(self) -> None:
        self.slow_until = 0.0
        self.delay_s = 0.0
        self.full_until = 0.0
        self.failing_until = 0.0
        self.fails_every = 3
        self.asked = 0
        self.stops_in: int | None = None


class FaultyStore(StoreOver):
    """One life of a store on it. `touch` hears of each bucket and key that a commit changed, as `bucket/key`."""

    def __init__(
        self, inner: Store, clock: Clock, trace: Trace, disk_faults: DiskFaults, touch: Callable[[str], None]
    ) -> None:
        super().__init__(inner)
        self._touch = touch
        self._clock = clock
        self._trace = trace
        self._disk_faults = disk_faults
        self.commits = 0
        self.frozen = anyio.Event()

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        await self._wait_and_fail()

        def noted(tx: Tx) -> R:
            noting = _Noting(tx)
            result = apply(noting)
            self._fail_by_chance()
            tx.on_commit(lambda: self._committed(noting, durability))
            return result

        result = await self._inner.write(noted, durability)
        if self.frozen.is_set():
            await anyio.Event().wait()
        return result

    async def _wait_and_fail(self) -> None:
        disk_faults, now = self._disk_faults, self._clock.monotonic()
        if now < disk_faults.slow_until:
            await self._clock.sleep(disk_faults.delay_s)
        if self.frozen.is_set():
            await anyio.Event().wait()
        if self._clock.monotonic() < disk_faults.full_until:
            raise Unavailable("the store cannot be used now: database or disk is full")

    def _fail_by_chance(self) -> None:
        disk_faults = self._disk_faults
        if self._clock.monotonic() < disk_faults.failing_until:
            disk_faults.asked += 1
            if disk_faults.asked % disk_faults.fails_every == 0:
                raise Unavailable("the store cannot be used now: disk I/O error")

    def _committed(self, noting: "_Noting", durability: Durability) -> None:
        """Told in the loop, in the order of the commits. After the last one that is to be, nobody hears of it."""
        self.commits += 1
        what = f"{self.commits} {durability.value} {noting.digest()} {' '.join(noting.keys)}"
        for key in noting.keys:
            self._touch(key)
        self._trace.add(self._clock.monotonic(), Speaker.COMMIT, what.replace("\0", "/"))
        if self._disk_faults.stops_in is not None:
            self._disk_faults.stops_in -= 1
            if self._disk_faults.stops_in <= 0:
                self._disk_faults.stops_in = None
                self._trace.add(self._clock.monotonic(), Speaker.DAEMON, f"is killed at its commit {self.commits}")
                self.frozen.set()
        if not self.frozen.is_set():
            for call in noting.calls:
                call()


class _Noting(TxOver):
    """A transaction whose changes are noted."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx)
        self._hash = blake2b(digest_size=6)
        self.keys: list[str] = []
        self.calls: list[Callable[[], None]] = []

    def digest(self) -> str:
        return self._hash.hexdigest()

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self._note(f"{bucket.name}/{key}", encode(value))
        self._tx.put(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._note(f"-{bucket.name}/{key}", b"")
        self._tx.delete(bucket, key)

    def on_commit(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def _note(self, key: str, value: bytes) -> None:
        self.keys.append(key)
        self._hash.update(key.encode() + b"\0" + value + b"\0")


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
