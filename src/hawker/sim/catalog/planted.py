"""The planted bugs of replication. Each leaves out one line of care, and the simulator must find every one."""

from collections.abc import Iterator, Mapping

from hawker.catalog.anti_entropy import VersionVector
from hawker.catalog.change import Delta, Op, Position, ReplicatedTx, Scope
from hawker.catalog.inbound import Inbound
from hawker.catalog.memory_storage import Key, MemoryStorage, StoredStream
from hawker.catalog.replication import Replication
from hawker.ids import NodeId
from hawker.sim.catalog.host import CatalogKit
from hawker.sim.harness.planted_bug import PlantedBug


class SkippingIntake(Inbound):
    """Applies what comes too early, and forgets the hole."""

    def _is_next(self, new_epoch: int, new_version: int, epoch: int, version: int) -> bool:
        return (new_epoch == epoch and version >= 0) or super()._is_next(new_epoch, new_version, epoch, version)


class SkippingStorage(MemoryStorage):
    def _comes_next(self, position: Position, tx: ReplicatedTx) -> bool:
        return True


class SilentReplication(Replication):
    """Compares its vector with nobody."""

    def _send_digest(self, whom: NodeId) -> None:
        return None


class TrustingReplication(Replication):
    """Goes on in its epoch though a peer knows more about this node."""

    def _doubt(self, epoch: int, version: int) -> None:
        return None


class ProvenStorage(MemoryStorage):
    """Takes a file that proves nothing for whole."""

    def proven(self) -> bool:
        return True


class NoTombstones(MemoryStorage):
    """Tells no deletions to who was away."""

    def _served(self, stream: StoredStream) -> Iterator[tuple[int, Op]]:
        return ((version, op) for version, op in super()._served(stream) if op.row is not None)


class UnfencedIntake(Inbound):
    """Believes a forgotten node again."""

    def _counts(self, origin: NodeId, epoch: int) -> bool:
        return True


class UnfencedStorage(MemoryStorage):
    def _barred(self, position: Position, epoch: int) -> bool:
        return False


class NoFloor(MemoryStorage):
    """Collects deletions, and does not note that they are not known any more."""

    def _lacks_deletions(self, position: Position, after: int) -> bool:
        return False


class StaleVector(VersionVector):
    """Leaves its digest as it was at the start."""

    _begun = False

    def __init__(self, positions: Mapping[NodeId, Position]) -> None:
        super().__init__(positions)
        self._begun = True

    def _count(self, bucket: int, origin: NodeId, position: Position) -> None:
        if not self._begun:
            super()._count(bucket, origin, position)


class NoSweep(MemoryStorage):
    """Adds and changes rows in a reset, and removes none."""

    def _swept(self, stream: StoredStream) -> Iterator[Key]:
        stream.sweep = None
        return iter(())


class NoRepublish(MemoryStorage):
    """Begins an epoch without what the owner has."""

    def renew(self, scope: Scope, epoch: int) -> Position:
        position = super().renew(scope, epoch)
        stream = self._stream(self._me, scope)
        stream.rows = {key: (-1, op, at) for key, (_, op, at) in stream.rows.items()}
        return position


class OldEpochIntake(Inbound):
    """Takes a late transaction of an epoch that is over."""

    def _is_new(self, new_epoch: int, new_version: int, epoch: int, version: int) -> bool:
        return new_epoch < epoch or super()._is_new(new_epoch, new_version, epoch, version)

    def _is_next(self, new_epoch: int, new_version: int, epoch: int, version: int) -> bool:
        return new_epoch < epoch or super()._is_next(new_epoch, new_version, epoch, version)


class OldEpochStorage(SkippingStorage):
    def _apply_tx(self, stream: StoredStream, tx: ReplicatedTx) -> list[tuple[Key, Op | None]]:
        position = stream.position
        if tx.epoch >= position.epoch or self._barred(position, tx.epoch):
            return super()._apply_tx(stream, tx)
        for op in tx.ops:
            stream.rows[op.table, op.key] = (position.applied, op, self._clock.now())
        return []


class QuarantineNotServed(MemoryStorage):
    """Keeps what this node has no table for from others too."""

    def _served(self, stream: StoredStream) -> Iterator[tuple[int, Op]]:
        return ((version, op) for version, op in super()._served(stream) if self._has_place(op, None))


class BackwardsIntake(Inbound):
    """Takes an answer that is older than what is there."""

    def _fits(self, delta: Delta) -> bool:
        epoch, version = self.where(delta.origin)
        return super()._fits(delta) if delta.reset else delta.epoch == epoch and 0 <= delta.after <= version


class BackwardsStorage(MemoryStorage):
    def _fits(self, stream: StoredStream, delta: Delta) -> bool:
        epoch, applied = stream.position.epoch, stream.position.applied
        return super()._fits(stream, delta) if delta.reset else delta.epoch == epoch and 0 <= delta.after <= applied


def _plant(name: str, what: str, kit: CatalogKit) -> PlantedBug[CatalogKit]:
    return PlantedBug(name=name, what=what, kit=kit)


PLANTS: tuple[PlantedBug[CatalogKit], ...] = (
    _plant(
        "skip-ahead",
        "what comes too early is applied, and the hole forgotten",
        CatalogKit(intake=SkippingIntake, storage=SkippingStorage),
    ),
    _plant("no-anti-entropy", "nobody compares vectors", CatalogKit(replication=SilentReplication)),
    _plant(
        "no-epoch-bump",
        "a peer knows more about this node, and it goes on",
        CatalogKit(replication=TrustingReplication),
    ),
    _plant("no-lease", "a file that proves nothing is taken for whole", CatalogKit(storage=ProvenStorage)),
    _plant("no-tombstones", "deletions are not told to who was away", CatalogKit(storage=NoTombstones)),
    _plant(
        "no-fence", "who was forgotten is believed again", CatalogKit(intake=UnfencedIntake, storage=UnfencedStorage)
    ),
    _plant(
        "no-floor", "deletions are collected, and nobody notes that they are not known", CatalogKit(storage=NoFloor)
    ),
    _plant("digest-not-updated", "the digest stays what it was at the start", CatalogKit(vector=StaleVector)),
    _plant("no-sweep", "a reset adds and changes, and removes nothing", CatalogKit(storage=NoSweep)),
    _plant("no-republish", "a new epoch begins without what the owner has", CatalogKit(storage=NoRepublish)),
    _plant(
        "old-epoch",
        "a late transaction of an epoch that is over is applied",
        CatalogKit(intake=OldEpochIntake, storage=OldEpochStorage),
    ),
    _plant(
        "aside-not-served",
        "what this node has no table for is kept from others too",
        CatalogKit(storage=QuarantineNotServed),
    ),
    _plant(
        "backwards",
        "an answer that is older than what is there is applied",
        CatalogKit(intake=BackwardsIntake, storage=BackwardsStorage),
    ),
)
