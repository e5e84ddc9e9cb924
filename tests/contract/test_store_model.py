"""Every store against a plain dict, whatever is done to it in whatever order: writes of both kinds, failures, restarts,
crashes. A crash keeps every durable commit and loses at most a suffix of the ordered ones.
"""

import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hawker.errors import Conflict
from hawker.store.contract import Bucket, Durability, Store, Tx
from hawker.store.memory_store import MemoryStore
from hawker.store.sqlite import SqliteStore

NUMBERS = Bucket("numbers", int)
KEYS = st.text(st.sampled_from("ab/\0é"), max_size=3)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(-5, 5))), max_size=5)
Pairs = dict[str, int]


class Disk(ABC):
    """Where a store keeps its data, and what may become of it."""

    store: Store

    @abstractmethod
    def reopen(self) -> None: ...

    @abstractmethod
    def crash(self, chance: Random) -> None: ...

    @abstractmethod
    def synced(self) -> None:
        """A durable commit has just returned."""


class Memory(Disk):
    def __init__(self) -> None:
        self.store: MemoryStore = MemoryStore()

    def reopen(self) -> None:
        self.store = self.store.crash()

    def crash(self, chance: Random) -> None:
        self.store = self.store.crash(keep=chance.randint(0, self.store.pending))

    def synced(self) -> None:
        assert self.store.pending == 0


class File(Disk):
    """A crash copies the files and cuts off the end of the log, but nothing that was synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._open()

    def _open(self) -> None:
        self.store = SqliteStore(self._path())
        self.synced()

    def _path(self) -> Path:
        return self._folder / f"{self._number}.db"

    def _log(self) -> Path:
        return self._folder / f"{self._number}.db-wal"

    def synced(self) -> None:
        self._synced_bytes = self._log().stat().st_size

    def reopen(self) -> None:
        self._open()

    def crash(self, chance: Random) -> None:
        old, old_log, keep = self._path(), self._log(), self._synced_bytes
        size = old_log.stat().st_size
        self._number += 1
        # Another process copies: closing the file in this one would drop the store's lock.
        subprocess.run(["cp", old, self._path()], check=True)
        subprocess.run(["cp", old_log, self._log()], check=True)
        with self._log().open("r+b") as log:
            log.truncate(chance.randint(keep, size))
        self._open()


class StoreMachine(RuleBasedStateMachine):
    disk: Disk

    def __init__(self) -> None:
        super().__init__()
        self.portal_context = start_blocking_portal()
        self.portal = self.portal_context.__enter__()
        self.durable: Pairs = {}
        self.pending: list[Pairs] = []

    @property
    def now(self) -> Pairs:
        return self.pending[-1] if self.pending else self.durable

    def stop(self) -> None:
        self.portal.call(self.disk.store.close)

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.stop()
        self.portal_context.__exit__(None, None, None)

    @rule(changes=CHANGES, durability=st.sampled_from(Durability), fails=st.booleans())
    def write(self, changes: list[tuple[str, int | None]], durability: Durability, fails: bool) -> None:
        after = dict(self.now)
        for key, value in changes:
            after.pop(key, None)
            after.update({} if value is None else {key: value})

        def apply(tx: Tx) -> None:
            for key, value in changes:
                tx.delete(NUMBERS, key) if value is None else tx.put(NUMBERS, key, value)
            assert dict(tx.scan(NUMBERS)) == after, "a transaction reads its own writes"
            if fails:
                raise Conflict("no")

        with suppress(Conflict):
            self.portal.call(self.disk.store.write, apply, durability)
            self._committed(after, durability)

    def _committed(self, after: Pairs, durability: Durability) -> None:
        self.pending.append(after)
        if durability is Durability.DURABLE:
            self.durable, self.pending = after, []
            self.disk.synced()

    @rule()
    def restart(self) -> None:
        self.stop()
        self.disk.reopen()
        self.durable, self.pending = self.now, []

    @rule(seed=st.integers(0, 1000))
    def crash(self, seed: int) -> None:
        before = self.disk.store
        self.disk.crash(Random(seed))
        self.portal.call(before.close)
        survived = dict(self.disk.store.scan(NUMBERS))
        assert survived in [self.durable, *self.pending], "what survives is a moment since the last durable commit"
        self.durable, self.pending = survived, []

    @rule(prefix=KEYS, after=st.none() | KEYS, limit=st.none() | st.integers(0, 3), reverse=st.booleans())
    def scan(self, prefix: str, after: str | None, limit: int | None, reverse: bool) -> None:
        keys = sorted((key for key in self.now if key.startswith(prefix)), reverse=reverse)
        if after is not None:
            keys = [key for key in keys if (key < after if reverse else key > after)]
        found = self.disk.store.scan(NUMBERS, prefix, after=after, limit=limit, reverse=reverse)
        assert list(found) == [(key, self.now[key]) for key in keys[:limit]]
        assert self.disk.store.count(NUMBERS, prefix) == len([key for key in self.now if key.startswith(prefix)])

    @invariant()
    def same(self) -> None:
        if hasattr(self, "disk"):
            assert dict(self.disk.store.scan(NUMBERS)) == self.now


class MemoryMachine(StoreMachine):
    @initialize()
    def begin(self) -> None:
        self.disk = Memory()


class SqliteMachine(StoreMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.disk = File(Path(self.folder.name))

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestMemoryStore: Any = MemoryMachine.TestCase
TestMemoryStore.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestSqliteStore: Any = SqliteMachine.TestCase
TestSqliteStore.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
