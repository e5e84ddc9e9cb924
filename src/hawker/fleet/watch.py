"""A store that tells what was written to it: bucket and key of each change, once it is committed. Nothing else of it is
changed; what is read and written goes straight through.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

from hawker.store.contract import Bucket, Durability, Reader, Store, Tx

T = TypeVar("T")
R = TypeVar("R")


class WatchedStore:
    """Keeps `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: list[Callable[[str, str], None]] = []

    def listen(self, listener: Callable[[str, str], None]) -> None:
        """Call it in the event loop with the bucket's name and the key of each change; it must not block."""
        self._listeners.append(listener)

    def get(self, bucket: Bucket[T], key: str) -> T | None:
        return self._store.get(bucket, key)

    def scan(
        self,
        bucket: Bucket[T],
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[str, T]]:
        return self._store.scan(bucket, prefix, after=after, limit=limit, reverse=reverse)

    def count(self, bucket: Bucket[T], prefix: str = "") -> int:
        return self._store.count(bucket, prefix)

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._store.write(partial(self._noting, apply), durability)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._store.snapshot()

    async def backup(self, target: Path, mark: Callable[[Tx], None] | None = None) -> None:
        await self._store.backup(target, mark)

    async def close(self) -> None:
        await self._store.close()

    def _noting(self, apply: Callable[[Tx], R], tx: Tx) -> R:
        """May run in the writer's thread."""
        noting = _NotingTx(tx)
        result = apply(noting)
        if noting.changed:
            tx.on_commit(partial(self._tell, noting.changed))
        return result

    def _tell(self, changed: dict[tuple[str, str], None]) -> None:
        for bucket, key in changed:
            for listener in self._listeners:
                listener(bucket, key)


class _NotingTx:
    """Keeps `Tx`. `changed` has each place once, in the order of the first change."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.changed: dict[tuple[str, str], None] = {}
        self.get = tx.get
        self.scan = tx.scan
        self.count = tx.count
        self.on_commit = tx.on_commit

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self.changed[bucket.name, key] = None
        self._tx.put(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self.changed[bucket.name, key] = None
        self._tx.delete(bucket, key)
