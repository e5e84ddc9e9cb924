"""The store in memory: keeps the same promises as the one on disk, without threads, and breaks on request.

It can fail chosen commits, be slow on a given clock, freeze after a chosen commit as a killed process does, and crash:
`crash` gives the store that a new process would find. Values are kept encoded, as on disk.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from hawker.clock import Clock
from hawker.errors import NotServed, Unavailable
from hawker.store.contract import Bucket, ChangeListener, ChangeListeners, Durability, Reader, Tx, decode, encode
from hawker.value_object import ValueObject

T = TypeVar("T")
R = TypeVar("R")

Changes = dict[tuple[str, str], bytes | None]  # (bucket, key) to the new value, or to None when deleted


class StoreFaults(ValueObject, frozen=True):
    """The faults of a store. Commits are numbered from 1, as `MemoryStore.commits` counts them; a failed one is not
    counted but uses up its number once. After commit `freeze_after`, nobody hears from the store again."""

    fail: Set[int] = frozenset()
    delay_s: float = 0.0
    """The seconds that each commit takes."""
    freeze_after: int | None = None


class _Pairs:
    """One bucket: its values, and its keys in order."""

    __slots__ = ("_copy", "keys", "values")

    def __init__(self, values: dict[str, bytes] | None = None, keys: list[str] | None = None) -> None:
        self.values = values or {}
        self.keys = keys or []
        self._copy: _Pairs | None = None

    def copy(self) -> "_Pairs":
        """A copy to read. All get the same one until the next change."""
        if self._copy is None:
            self._copy = _Pairs(dict(self.values), list(self.keys))
        return self._copy

    def set(self, key: str, value: bytes | None) -> None:
        self._copy = None
        if value is not None:
            if key not in self.values:
                insort(self.keys, key)
            self.values[key] = value
        elif self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def range(self, prefix: str) -> tuple[int, int]:
        """The first key with the prefix, and the first beyond them; in order, they stand together."""
        if not prefix:
            return 0, len(self.keys)
        low = bisect_left(self.keys, prefix)
        return low, bisect_left(self.keys, True, lo=low, key=lambda key: not key.startswith(prefix))


class _View:
    """Reads over buckets in memory."""

    def __init__(self, buckets: dict[str, _Pairs]) -> None:
        self._buckets = buckets

    def get(self, bucket: Bucket[T], key: str) -> T | None:
        data = self._pairs(bucket.name).values.get(key)
        return None if data is None else decode(bucket, key, data)

    def scan(
        self,
        bucket: Bucket[T],
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[str, T]]:
        pairs = self._pairs(bucket.name)
        low, high = pairs.range(prefix)
        if after is not None and reverse:
            high = min(high, bisect_left(pairs.keys, after))
        elif after is not None:
            low = max(low, bisect_right(pairs.keys, after))
        keys = pairs.keys[low:high]
        rows = [(key, pairs.values[key]) for key in (reversed(keys) if reverse else keys)]
        return ((key, decode(bucket, key, value)) for key, value in rows[:limit])

    def count(self, bucket: Bucket[T], prefix: str = "") -> int:
        low, high = self._pairs(bucket.name).range(prefix)
        return high - low

    def sizes(
        self, bucket: Bucket[Any], prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, int]]:
        pairs = self._pairs(bucket.name)
        low, high = pairs.range(prefix)
        low = low if after is None else max(low, bisect_right(pairs.keys, after))
        return [(key, len(pairs.values[key])) for key in pairs.keys[low:high][:limit]]

    def _pairs(self, name: str) -> _Pairs:
        return self._buckets.setdefault(name, _Pairs())


class _Transaction(_View):
    """Changes the buckets in place and remembers how to take that back."""

    def __init__(self, buckets: dict[str, _Pairs]) -> None:
        super().__init__(buckets)
        self.calls: list[Callable[[], None]] = []
        self.changes: Changes = {}
        self._before: Changes = {}

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self._set(bucket.name, key, encode(value))

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._set(bucket.name, key, None)

    def on_commit(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def rollback(self) -> None:
        for (name, key), value in self._before.items():
            self._pairs(name).set(key, value)

    def _set(self, name: str, key: str, value: bytes | None) -> None:
        self._before.setdefault((name, key), self._pairs(name).values.get(key))
        self.changes[name, key] = value
        self._pairs(name).set(key, value)


class MemoryStore(_View):
    """Keeps `store.contract.Store` and `Observable`. `clock` is needed only when `faults.delay_s` is set."""

    def __init__(self, clock: Clock | None = None, faults: StoreFaults | None = None) -> None:
        super().__init__({})
        self._clock = clock
        self._faults = faults or StoreFaults()
        self._durable: Changes = {}
        self._pending: list[Changes] = []
        self._failed: set[int] = set()
        self._closed = False
        self._listeners = ChangeListeners()
        self.commits = 0
        self.frozen = anyio.Event()

    @property
    def pending(self) -> int:
        """The number of the newest commits that a crash may lose."""
        return len(self._pending)

    def encoded(self) -> Iterator[tuple[str, bytes]]:
        """Each value as it is kept, with the name of its bucket."""
        for name, pairs in self._buckets.items():
            yield from ((name, value) for value in pairs.values.values())

    def listen(self, listener: ChangeListener) -> None:
        self._listeners.add(listener)

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        """Runs `apply` in a transaction and returns its result. Raises `Unavailable` when the store is closed, and what
        `apply` raises."""
        await self._delay()
        if self._closed:
            raise Unavailable("the store is closed")
        tx = _Transaction(self._buckets)
        try:
            result = apply(tx)
            self._fail_if_asked()
        except BaseException:
            tx.rollback()
            raise
        await self._commit(tx, durability)
        return result

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        yield _View({name: pairs.copy() for name, pairs in self._buckets.items()})

    async def backup(self, target: Path, mark: Callable[[Tx], None] | None = None) -> None:
        """Makes no backup. Raises `NotServed`: there is no file."""
        raise NotServed("a store in memory has no file to copy")

    async def close(self) -> None:
        self._make_durable()
        self._closed = True

    def crash(self, keep: int = 0, faults: StoreFaults | None = None) -> "MemoryStore":
        """The store that a new process finds: every durable commit, and the `keep` oldest of those pending. This one
        freezes."""
        survivor = MemoryStore(self._clock, faults)
        for changes in (self._durable, *self._pending[:keep]):
            for (name, key), value in changes.items():
                survivor._durable[name, key] = value
                survivor._pairs(name).set(key, value)
        self.frozen.set()
        return survivor

    async def _delay(self) -> None:
        if self._clock is not None and self._faults.delay_s > 0:
            await self._clock.sleep(self._faults.delay_s)
        await anyio.lowlevel.checkpoint()
        if self.frozen.is_set():
            await anyio.sleep_forever()

    def _fail_if_asked(self) -> None:
        number = self.commits + 1
        if number in self._faults.fail and number not in self._failed:
            self._failed.add(number)
            raise Unavailable("the store cannot be used now: a fault was asked for")

    async def _commit(self, tx: _Transaction, durability: Durability) -> None:
        self.commits += 1
        self._pending.append(tx.changes)
        if durability is Durability.DURABLE:
            self._make_durable()
        if self.commits == self._faults.freeze_after:
            self.frozen.set()
            await anyio.sleep_forever()
        for call in tx.calls:
            call()
        self._listeners.tell(tx.changes)

    def _make_durable(self) -> None:
        for changes in self._pending:
            self._durable.update(changes)
        self._pending.clear()
