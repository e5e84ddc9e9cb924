"""A host of a light fleet: the fake of a worker behind the worker's own contract; at the first few, a whole broker.

Bids, ledgers, claims, admission, capacity and records are the worker's own, over a store in memory. There are no flows,
no driver, no supervisor, no gossip and no replica: what the nodes know of each other is in the `SharedCatalog`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import cast

import anyio

from hawker.catalog.contract import Catalog
from hawker.sim.fleet.cluster import LiveNode, SimCluster, clock_of, doors_of, opened, porter_of, publisher_of, shut
from hawker.sim.fleet.host import FleetHost, NodeWorld
from hawker.sim.fleet.instant_operations import InstantOperations
from hawker.sim.fleet.network import Endpoint, SimPeers
from hawker.sim.fleet.operation import BROKERS
from hawker.sim.fleet.shared_catalog import MISSED_S, SharedCatalog, SharedCatalogView
from hawker.sim.node.sim_worker import SimWorker
from hawker.worker.fleet.publish import Publisher
from hawker.worker.fleet.watch import WatchedStore
from hawker.worker.handlers import worker_handlers
from hawker.worker.parts import Parts
from hawker.worker.reconcile import Reconciler


class LightWorld(NodeWorld):
    @asynccontextmanager
    async def _life(self) -> AsyncIterator[SimWorker]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._die_with_the_store)
            parts = self._parts(self.images())
            parts = replace(parts, operations=InstantOperations(parts.deps, parts.runner, parts.room))
            yield SimWorker(parts, Reconciler(parts.deps, parts.runner), self.host, tasks)
            tasks.cancel_scope.cancel()


class LightHost(FleetHost):
    made = LightWorld

    def _joined(self, worker: SimWorker) -> AbstractAsyncContextManager[LiveNode]:
        return _joined(self._town, worker, self.kept, self.lives)


@asynccontextmanager
async def _joined(town: SimCluster, worker: SimWorker, store: WatchedStore, life: int) -> AsyncIterator[LiveNode]:
    me = worker.parts.node.id
    share, wired = SharedCatalogView(commons_of(town), me, life), SimPeers(town.wire, me)
    parts = replace(worker.parts, porter=porter_of(store, worker.parts, clock_of(worker)))
    publisher = publisher_of(cast(Catalog, share), clock_of(worker), store, parts)
    peers, broker = _doors(town, worker, parts, publisher, wired)
    node = LiveNode(worker=worker, parts=parts, publisher=publisher, peers=peers, broker=broker)
    share.begin()
    after_s = MISSED_S
    try:
        await worker.tasks.start(publisher.serve)
        opened(town.wire, me, node)
        yield node
        after_s = 0.0
    finally:
        share.end(after_s)
        shut(town.wire, me, node)


def _doors(
    town: SimCluster, worker: SimWorker, parts: Parts, publisher: Publisher, wired: SimPeers
) -> tuple[Endpoint, Endpoint | None]:
    if int(parts.node.id, 16) <= BROKERS:
        return doors_of(town, worker, parts, publisher, wired, commons_of(town))
    handlers = worker_handlers(parts)
    return Endpoint(clock=clock_of(worker), handlers=handlers, tasks=worker.tasks, written=publisher.written), None


def commons_of(town: SimCluster) -> SharedCatalog:
    assert town.commons is not None, "a light fleet has commons"
    return town.commons
