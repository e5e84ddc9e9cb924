"""Hosts of a simulated fleet: what outlives its daemons, and their lives one after the other.

A host of a light fleet is the fake of a worker behind the worker's own contract; at the first few, a whole broker.
Bids, ledgers, claims, admission, capacity and records are the worker's own, over a store in memory. There are no flows,
no driver, no supervisor, no gossip and no replica: what the nodes know of each other is in the `SharedCatalog`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from msgspec.structs import replace

from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.clock import Clock
from hawker.fleet.publish import Publisher
from hawker.fsm.contract import Flow, Resource
from hawker.fsm.runner import Runner
from hawker.ids import NodeId, RunId
from hawker.machine import State
from hawker.node import Capacity
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.node import NODE, NodeRecord
from hawker.sim.fleet.cluster import (
    FakeCatalogDisk,
    LiveNode,
    SimCluster,
    bundler_of,
    clock_of,
    endpoints_of,
    joined,
    opened,
    publisher_of,
    shut,
)
from hawker.sim.fleet.network import SimEndpoint, SimPeers
from hawker.sim.fleet.plan import BROKERS
from hawker.sim.fleet.shared_catalog import MISSED_S, SharedCatalog, SharedCatalogView
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import FakeRegistry
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import VirtualWorld
from hawker.store.contract import Observable, Store, Tx
from hawker.store.memory_store import MemoryStore
from hawker.up.wiring import node_handlers
from hawker.worker.assembly import reconciler_of
from hawker.worker.capacity import at_rest
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.start import CREATE, START, Launch
from hawker.worker.lifecycle.stop import STOP
from hawker.worker.table import Happened


class NodeWorld(VirtualWorld):
    """The worker's part of a node."""

    store: MemoryStore


class FleetHost:
    """`node` is what is up now. Between two lives the host may be off: then nobody even refuses a connection."""

    made: type[NodeWorld] = NodeWorld

    def __init__(
        self, cluster: SimCluster, node_id: NodeId, region: str, folder: Path, *, seed: int, room: Capacity
    ) -> None:
        self.id, self.region, self._cluster = node_id, region, cluster
        self.catalog_disk = FakeCatalogDisk(folder / str(node_id))
        kit = replace(cluster.kit.worker, store=lambda store: cluster.kit.store(cluster.kit.worker.store(store)))
        record = NodeRecord(id=node_id, region=region, created_at=0.0)
        self.place = self.made(
            MemoryStore(), Path("node"), seed=seed, room=room, kit=kit, node=record, nameservers=("fdaa::3",)
        )
        self.place.registry = FakeRegistry()
        self.node: LiveNode | None = None
        self.lives = self.kills = 0
        self.since = 0.0  # when it came up last
        self._end = anyio.Event()
        self.ended = anyio.Event()

    async def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """A new life; returns once it answers."""
        self._end, self.ended = anyio.Event(), anyio.Event()
        await tasks.start(self._live)

    async def stop(self) -> None:
        """In good order."""
        node, self.node = self.node, None
        if node is None:
            return
        shut(self._cluster.call_network, self.id, node)
        self._end.set()
        await self.ended.wait()
        store = self.place.store
        await store.close()
        self.place.store = store.crash(0)

    async def kill(self, *, kept: float = 1.0, power: bool = False) -> None:
        """Returns once nothing of that life is left."""
        self.fall(kept=kept, power=power)
        await self.ended.wait()

    def fall(self, *, kept: float = 1.0, power: bool = False) -> None:
        """Killed at this moment: nothing that it does from now on counts. `kept` is the share of what was not yet
        synced."""
        node, self.node = self.node, None
        if node is None:
            return
        self.kills += 1
        self.catalog_disk.kill()
        old = self.place.store
        self.place.store = old.crash(round(old.pending * kept))
        if power:
            self.catalog_disk.reboot()
            self.place.reboot()
        shut(self._cluster.call_network, self.id, node)

    async def _live(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        self.lives += 1
        if self.place.store.get(NODE, "self") is None:
            await self.place.store.write(lambda tx: tx.put(NODE, "self", self.place.node))
        try:
            async with self.place.open() as worker:
                await self._serve(worker, task_status)
        except Death:
            pass
        finally:
            self.node = None
            self.ended.set()

    async def _serve(self, worker: SimWorker, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with self._joined(worker) as node:
            self.node, self.since = node, self.place.clock.monotonic()
            task_status.started()
            await self._end.wait()
            self.node = None

    def _joined(self, worker: SimWorker) -> AbstractAsyncContextManager[LiveNode]:
        return joined(self._cluster, worker, self.place.store, self.catalog_disk)


class InstantRunner(Runner[FlowDeps]):
    """Creates, starts, stops and destroys within the transaction that orders it; other runs are not played."""

    def __init__(self, store: Store, flows: Sequence[Flow[Any]], deps: FlowDeps, clock: Clock, **named: Any) -> None:
        super().__init__(store, flows, deps, clock, **named)
        self._table = deps.table

    def accept(self, tx: Tx, flow: Flow[Any] | str, resource: Resource, input: msgspec.Struct, **named: Any) -> RunId:
        assert isinstance(flow, Flow), "operations name the flow itself"
        record, table = tx.get(MACHINES, resource.id), self._table
        assert record is not None, "it was changed in this transaction"
        match flow.name:
            case CREATE.name | START.name:
                assert isinstance(input, Launch)
                if input.launch:
                    table.change(tx, record, Happened("start", "started"), state=State.STARTED, awaited=None)
                else:
                    self._rest(tx, record)
            case STOP.name:
                self._rest(tx, record)
            case DESTROY.name:
                table.remove(tx, record, Happened("destroy", "destroyed"))
            case _:
                raise AssertionError(f"{flow.name} is not played by a worker without flows")
        return RunId("instant")

    def _rest(self, tx: Tx, record: MachineRecord) -> None:
        happened = Happened("stop", "stopped")
        self._table.change(tx, record, happened, state=State.STOPPED, holds=at_rest(record), awaited=None)


class LightWorld(NodeWorld):
    @asynccontextmanager
    async def _life(self) -> AsyncIterator[SimWorker]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._die_with_the_store)
            self._kit = replace(self._kit, runner=InstantRunner)
            parts = self._parts(self.images())
            yield SimWorker(parts, reconciler_of(parts), self.host, tasks)
            tasks.cancel_scope.cancel()


class LightHost(FleetHost):
    made = LightWorld

    def _joined(self, worker: SimWorker) -> AbstractAsyncContextManager[LiveNode]:
        return _joined(self._cluster, worker, self.place.store, self.lives)


@asynccontextmanager
async def _joined(cluster: SimCluster, worker: SimWorker, store: Observable, life: int) -> AsyncIterator[LiveNode]:
    me = worker.parts.node.id
    share, wired = SharedCatalogView(shared_catalog_of(cluster), me, life), SimPeers(cluster.call_network, me)
    parts = worker.parts
    handlers = node_handlers(parts, bundler=bundler_of(parts))
    publisher = publisher_of(cast(Catalog, share), clock_of(worker), store, parts)
    peers, broker = _doors(cluster, worker, handlers, publisher, wired)
    node = LiveNode(worker=worker, parts=parts, publisher=publisher, peers=peers, broker=broker)
    share.begin()
    after_s = MISSED_S
    try:
        await worker.tasks.start(publisher.serve)
        opened(cluster.call_network, me, node)
        yield node
        after_s = 0.0
    finally:
        share.end(after_s)
        shut(cluster.call_network, me, node)


def _doors(
    cluster: SimCluster, worker: SimWorker, handlers: Handlers, publisher: Publisher, wired: SimPeers
) -> tuple[SimEndpoint, SimEndpoint | None]:
    if int(worker.parts.node.id, 16) <= BROKERS:
        return endpoints_of(cluster, worker, handlers, publisher, wired, shared_catalog_of(cluster))
    return SimEndpoint(clock=clock_of(worker), handlers=handlers, tasks=worker.tasks, written=publisher.written), None


def shared_catalog_of(cluster: SimCluster) -> SharedCatalog:
    assert cluster.shared_catalog is not None, "a light fleet has commons"
    return cluster.shared_catalog
