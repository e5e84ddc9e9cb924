"""Stores that promise too much."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from hawker.store.contract import Bucket, Durability, Reader, Store, Tx

T = TypeVar("T")
R = TypeVar("R")


class _Over:
    """A store over another one."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.get, self.scan, self.count = inner.get, inner.scan, inner.count

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._inner.snapshot()

    async def backup(self, target: Path, mark: Callable[[Tx], None] | None = None) -> None:
        await self._inner.backup(target, mark)

    async def close(self) -> None:
        await self._inner.close()


class Unsynced(_Over):
    """Answers before anything is on disk."""

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._inner.write(apply, Durability.ORDERED)


class Halved(_Over):
    """Writes what belongs to runs in a transaction of its own, after that of the records."""

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        later: list[_Half] = []

        def first(tx: Tx) -> R:
            half = _Half(tx)
            later[:] = [half]
            return apply(half)

        result = await self._inner.write(first, durability)
        await self._inner.write(later[0].replay, durability)
        return result


class _Half:
    """Keeps back the changes to the buckets of runs; they are read from here."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._held: dict[tuple[str, str], tuple[Bucket[Any], Any]] = {}
        self._calls: list[Callable[[], None]] = []

    def get(self, bucket: Bucket[T], key: str) -> T | None:
        held = self._held.get((bucket.name, key))
        found: T | None = held[1] if held is not None else self._tx.get(bucket, key)
        return found

    def scan(self, bucket: Bucket[T], prefix: str = "", **options: Any) -> Iterator[tuple[str, T]]:
        return self._tx.scan(bucket, prefix, **options)

    def count(self, bucket: Bucket[T], prefix: str = "") -> int:
        return self._tx.count(bucket, prefix)

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self._change(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._change(bucket, key, None)

    def on_commit(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def replay(self, tx: Tx) -> None:
        for (_, key), (bucket, value) in self._held.items():
            _apply(tx, bucket, key, value)
        for call in self._calls:
            tx.on_commit(call)

    def _change(self, bucket: Bucket[T], key: str, value: T | None) -> None:
        if bucket.name.startswith("fsm."):
            self._held[bucket.name, key] = (bucket, value)
        else:
            _apply(self._tx, bucket, key, value)


def _apply(tx: Tx, bucket: Bucket[T], key: str, value: T | None) -> None:
    if value is None:
        tx.delete(bucket, key)
    else:
        tx.put(bucket, key, value)
