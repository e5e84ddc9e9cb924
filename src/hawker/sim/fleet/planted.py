"""The planted bugs of fleets: each is what a node of this kind gets wrong, and the simulator must find every one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hawker.api.caller import Caller
from hawker.api.contract.market import CANCEL, CancelAnswer
from hawker.api.directory import Peers
from hawker.catalog.change import Delta
from hawker.catalog.change import ReplicatedTx as CatalogTx
from hawker.catalog.contract import ApplyOutcome
from hawker.catalog.storage import SqliteStorage
from hawker.fleet.failover import ALIVE, FailoverView, Spare, Takeover, Watched
from hawker.ids import MachineId, NodeId
from hawker.node import Resources
from hawker.proof.violation import Invariant as I
from hawker.record.node import CANCELLED, CLAIMS, NODE
from hawker.sim.fleet.cluster import FleetKit
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.node.faulty_store import StoreOver, TxOver
from hawker.sim.node.kit import WorkerKit
from hawker.store.contract import Bucket, Durability, Reader, Store, Tx
from hawker.worker.table import MachineTable

T = TypeVar("T")
R = TypeVar("R")

_EVERY = 5


class _NeverCancels:
    """Peers of a broker that takes every order whose answer it did not hear for one that was not filled."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        return _Uncancelled(self._peers.caller(node_id, behalf=behalf))


class _Uncancelled:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def call(self, route: Any, **given: Any) -> Any:
        return CancelAnswer() if route is CANCEL else await self._caller.call(route, **given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)


class _NeverUndoes(_NeverCancels):
    """Peers of a broker that leaves what it filled of an order that has to be whole."""

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        return _NotUndone(self._peers.caller(node_id, behalf=behalf))


class _NotUndone(_Uncancelled):
    async def call(self, route: Any, **given: Any) -> Any:
        if route is CANCEL and given["query"].destroy:
            return CancelAnswer()
        return await self._caller.call(route, **given)


class _Forgets(StoreOver):
    """A store that does not write one of its buckets."""

    def __init__(self, store: Store, bucket: str) -> None:
        super().__init__(store)
        self._bucket = bucket

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._inner.write(lambda tx: apply(_ForgetsTx(tx, self._bucket)), durability)


class _Lazy(StoreOver):
    """A store that answers before it syncs."""

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._inner.write(apply, Durability.ORDERED)


class _ForgetsTx(TxOver):
    def __init__(self, tx: Tx, bucket: str) -> None:
        super().__init__(tx)
        self._bucket = bucket
        self.delete, self.on_commit = tx.delete, tx.on_commit

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if bucket.name != self._bucket:
            self._tx.put(bucket, key, value)


class _Admits(MachineTable):
    """Whoever was bid for is let in: the room is not looked at again."""

    def used(self, reader: Reader) -> Resources:
        return Resources() if hasattr(reader, "put") else super().used(reader)


class _Skips(SqliteStorage):
    """Loses what is in some of the versions that others tell."""

    _heard = 0

    def apply(self, batch: Sequence[CatalogTx | Delta]) -> ApplyOutcome:
        return super().apply([self._less(item) for item in batch])

    def _less(self, item: CatalogTx | Delta) -> CatalogTx | Delta:
        if isinstance(item, Delta):
            return item
        self._heard += 1
        return (
            item if self._heard % _EVERY else CatalogTx(item.origin, item.scope, item.epoch, item.version, item.at, ())
        )


class _Sees:
    """A `FailoverView` as it is; its children see something else."""

    def __init__(self, sight: FailoverView) -> None:
        self._sight = sight

    async def fates(self) -> Mapping[NodeId, str]:
        return await self._sight.fates()

    async def watched(self, machine_id: MachineId) -> Watched | None:
        return await self._sight.watched(machine_id)

    async def spares(self, machine_id: MachineId) -> Sequence[Spare]:
        return await self._sight.spares(machine_id)

    async def takeovers(self, machine_id: MachineId) -> Sequence[Takeover]:
        return await self._sight.takeovers(machine_id)

    async def taken_from(self, owner: NodeId) -> Sequence[Takeover]:
        return await self._sight.taken_from(owner)

    async def witnesses(self, owner: NodeId) -> int:
        return await self._sight.witnesses(owner)

    async def is_away(self, owner: NodeId) -> bool:
        return await self._sight.is_away(owner)


class _Alone(_Sees):
    """Takes itself for most of the region, and for its own witness."""

    async def fates(self) -> Mapping[NodeId, str]:
        found = dict(await super().fates())
        return found | {NodeId(f"ffffff{at:02x}"): ALIVE for at in range(len(found))}

    async def witnesses(self, owner: NodeId) -> int:
        return 1


class _Heedless(_Sees):
    """Does not hear that a spare has taken over."""

    async def taken_from(self, owner: NodeId) -> Sequence[Takeover]:
        return ()


def _plant(name: str, what: str, kit: FleetKit, *breaks: I) -> PlantedBug[FleetKit]:
    return PlantedBug(name=name, what=what, kit=kit, breaks=frozenset(breaks))


def _forgetting(bucket: Bucket[Any]) -> FleetKit:
    return FleetKit(store=lambda store: _Forgets(store, bucket.name))


PLANTS: tuple[PlantedBug[FleetKit], ...] = (
    _plant(
        "no-cancel",
        "a broker goes on to the next best without knowing that the best did not fill the order",
        FleetKit(peers=_NeverCancels),
        I.FILLED_ONCE,
    ),
    _plant("forgets-cancels", "a worker forgets which orders were cancelled", _forgetting(CANCELLED), I.FILLED_ONCE),
    _plant("forgets-claims", "an app's home forgets where orders with a key went", _forgetting(CLAIMS), I.FILLED_ONCE),
    _plant(
        "no-admission", "a worker fills whatever it bid for", FleetKit(worker=WorkerKit(table=_Admits)), I.NOT_OVERSOLD
    ),
    _plant("alone", "a spare is started without a majority and a witness", FleetKit(sight=_Alone), I.SPARE_ONCE),
    _plant("heedless", "a machine goes on after its spare has taken over", FleetKit(sight=_Heedless), I.ONE_INSTANCE),
    _plant(
        "no-undo",
        "a broker leaves what it has filled of an order of all or none",
        FleetKit(peers=_NeverUndoes),
        I.ALL_OR_NONE,
    ),
    _plant("forgets-cordon", "a node forgets that it is cordoned", _forgetting(NODE), I.CORDONED),
    _plant("lazy", "a node answers before its disk has what it says", FleetKit(store=_Lazy), I.KEPT),
    _plant("skipped-version", "a replica loses some versions", FleetKit(storage=_Skips), I.CONVERGED),
)
