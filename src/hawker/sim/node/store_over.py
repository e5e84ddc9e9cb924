"""A store over another one, and a transaction over another one: what a simulator or a planted bug changes of either."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from hawker.store.contract import Reader, Store, Tx


class StoreOver:
    """Does what `inner` does; its children write in another way."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.get, self.scan, self.count = inner.get, inner.scan, inner.count

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
        self.get, self.scan, self.count = tx.get, tx.scan, tx.count
