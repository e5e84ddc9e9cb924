"""Stores of planted bugs of moves: they sync later what counts on being durable, or write less than they were told."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hawker.node import Resources
from hawker.record.move import COMING_SNAPSHOTS, INCOMING, MOVED, TRIALS, ComingSnapshot, IncomingRecord, IncomingState
from hawker.record.node import hold
from hawker.record.volume import VOLUMES, VolumeRecord
from hawker.sim.node.faulty_store import StoreOver, TxOver
from hawker.store.contract import Bucket, Durability, Store, Tx

T = TypeVar("T")
R = TypeVar("R")


class LazyStore(StoreOver):
    """A store that syncs what is put into one bucket with whatever is synced next."""

    def __init__(self, late: Bucket[Any], inner: Store) -> None:
        super().__init__(inner)
        self._late = late.name

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        put: set[str] = set()
        result = await self._inner.write(lambda tx: apply(NotingTx(tx, put)), Durability.ORDERED)
        if durability is Durability.DURABLE and self._late not in put:
            await self._inner.write(lambda tx: None, Durability.DURABLE)
        return result


class NotingTx(TxOver):
    """Which buckets are put to."""

    def __init__(self, tx: Tx, put: set[str]) -> None:
        super().__init__(tx)
        self._into = put

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self._into.add(bucket.name)
        self._tx.put(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._tx.delete(bucket, key)

    def on_commit(self, call: Callable[[], None]) -> None:
        self._tx.on_commit(call)


class StoreWith(StoreOver):
    """A store whose transactions are of this type."""

    def __init__(self, by: type[NotingTx], inner: Store) -> None:
        super().__init__(inner)
        self._by = by

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._inner.write(lambda tx: apply(self._by(tx, set())), durability)


class WithoutSignposts(NotingTx):
    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if bucket.name != MOVED.name:
            super().put(bucket, key, value)


class WithoutKeys(NotingTx):
    """What opens a volume stays where it was made."""

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if isinstance(value, VolumeRecord) and value.generation > 1:
            without: VolumeRecord = msgspec.structs.replace(value, key=None)
            self._tx.put(VOLUMES, key, without)
        else:
            super().put(bucket, key, value)


class WithoutHolds(NotingTx):
    """There was room for a snapshot when it was looked at, and others may take it."""

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if isinstance(value, ComingSnapshot) and value.holds != Resources():
            hold(self._tx, value.holds, Resources())
            without: ComingSnapshot = msgspec.structs.replace(value, holds=Resources())
            self._tx.put(COMING_SNAPSHOTS, key, without)
        else:
            super().put(bucket, key, value)


class WithoutTrials(NotingTx):
    """Nobody looks whether what came starts."""

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if bucket.name != TRIALS.name:
            super().put(bucket, key, value)


class WithoutRefusals(NotingTx):
    """A refusal is answered, and not written down."""

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if isinstance(value, IncomingRecord) and value.state is IncomingState.REFUSED:
            there = self.get(INCOMING, key)
            assert there is not None, "what is refused was held"
            self._tx.put(INCOMING, key, msgspec.structs.replace(there, holds=value.holds))
        else:
            super().put(bucket, key, value)
