"""Transactions that came before those ahead of them: held until the hole is filled, within bounds.

What does not fit goes, the furthest first; it is pulled again once the stream is there.
"""

from collections.abc import Iterator

from hawker.catalog.change import ReplicatedTx
from hawker.ids import NodeId

TXS = 1024
BYTES = 4 << 20
TOTAL_BYTES = 64 << 20


class ReorderBuffer:
    """The reorder buffers of a scope: for each origin, what is ahead of its stream in one epoch."""

    def __init__(self, *, txs: int = TXS, size: int = BYTES, total: int = TOTAL_BYTES) -> None:
        self._txs, self._size, self._total = txs, size, total
        self._held: dict[NodeId, dict[int, tuple[ReplicatedTx, int]]] = {}
        self._bytes: dict[NodeId, int] = {}
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def has(self, origin: NodeId, epoch: int, version: int) -> bool:
        held = self._held.get(origin, {}).get(version)
        return held is not None and held[0].epoch == epoch

    def epoch(self, origin: NodeId) -> int:
        """That of what is held; -1 with nothing held."""
        return next((tx.epoch for tx, _ in self._held.get(origin, {}).values()), -1)

    def lowest(self, origin: NodeId) -> int | None:
        return min(self._held.get(origin, ()), default=None)

    def hold(self, tx: ReplicatedTx, size: int) -> bool:
        """Whether it was taken in. A newer epoch drops what an older one left; an older one is refused."""
        epoch = self.epoch(tx.origin)
        if epoch > tx.epoch:
            return False
        if epoch not in (-1, tx.epoch):
            self.drop(tx.origin)
        held = self._held.setdefault(tx.origin, {})
        if tx.version in held:
            return False
        if self.bytes + size > self._total:
            self.dropped += 1
            return False
        held[tx.version] = (tx, size)
        self._count(tx.origin, size)
        while len(held) > self._txs or self._bytes[tx.origin] > self._size:
            self._forget(tx.origin, max(held))
            self.dropped += 1
        return tx.version in held

    def follow(self, origin: NodeId, epoch: int, version: int) -> Iterator[tuple[ReplicatedTx, int]]:
        """Take out what comes right after `version`, as far as it is whole. What is behind that goes too."""
        held = self._held.get(origin)
        if not held or self.epoch(origin) != epoch:
            return
        for stale in [number for number in held if number <= version]:
            self._forget(origin, stale)
        while (found := held.get(version + 1)) is not None:
            version += 1
            self._forget(origin, version)
            yield found

    def drop(self, origin: NodeId) -> None:
        for version in list(self._held.get(origin, ())):
            self._forget(origin, version)
        self._held.pop(origin, None)

    def _forget(self, origin: NodeId, version: int) -> None:
        _, size = self._held[origin].pop(version)
        self._count(origin, -size)

    def _count(self, origin: NodeId, size: int) -> None:
        self._bytes[origin] = self._bytes.get(origin, 0) + size
        self.bytes += size
