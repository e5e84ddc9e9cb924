"""A host of a light fleet: the fake of a worker behind the worker's own contract; at the first few, a whole broker.

Bids, ledgers, claims, admission, capacity and records are the worker's own, over a store in memory. There are no flows,
no driver, no supervisor, no gossip and no replica: what the nodes know of each other is in the `SharedCatalog`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TypeVar, cast

import anyio
import msgspec

from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.fleet.publish import Publisher
from hawker.fsm.contract import Flow
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineRecord
from hawker.sim.fleet.cluster import (
    LiveNode,
    SimCluster,
    bundler_of,
    clock_of,
    endpoints_of,
    opened,
    publisher_of,
    shut,
)
from hawker.sim.fleet.host import FleetHost, NodeWorld
from hawker.sim.fleet.network import SimEndpoint, SimPeers
from hawker.sim.fleet.plan import BROKERS
from hawker.sim.fleet.shared_catalog import MISSED_S, SharedCatalog, SharedCatalogView
from hawker.sim.node.sim_worker import SimWorker
from hawker.store.contract import Tx
from hawker.store.observer import Observable
from hawker.up.wiring import node_handlers
from hawker.worker.assembly import operations_of, reconciler_of
from hawker.worker.capacity import at_rest
from hawker.worker.lifecycle.create import CREATE
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.lifecycle.stop import STOP
from hawker.worker.operations import Operations
from hawker.worker.table import Happened

Given = TypeVar("Given", bound=msgspec.Struct)


class InstantOperations(Operations):
    """Creates, starts, stops and destroys; other operations are not played."""

    def _accept(self, tx: Tx, flow: Flow[Given], machine_id: MachineId, input: Given) -> None:
        record, table = tx.get(MACHINES, machine_id), self._table
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

    def _rest(self, tx: Tx, record: MachineRecord) -> None:
        happened = Happened("stop", "stopped")
        self._table.change(tx, record, happened, state=State.STOPPED, holds=at_rest(record), awaited=None)


# The operations of a worker whose machines are never launched: each is over in the transaction that begins it.
# Admission, the records, their indexes and their histories are the worker's own. There are no flows and no host.


class LightWorld(NodeWorld):
    @asynccontextmanager
    async def _life(self) -> AsyncIterator[SimWorker]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._die_with_the_store)
            parts = self._parts(self.images())
            parts = replace(parts, operations=operations_of(parts.deps, parts.runner, parts.room, InstantOperations))
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
