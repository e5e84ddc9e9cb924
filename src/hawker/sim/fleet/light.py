"""A host of a light fleet: the fake of a worker behind the worker's own contract; at the first few, a whole broker.

Bids, ledgers, claims, admission, capacity and records are the worker's own, over a store in memory. There are no flows,
no driver, no supervisor, no gossip and no replica: what the nodes know of each other is in the `Commons`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import cast

import anyio

from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.fleet.publish import Publisher
from hawker.sim.fleet.commons import MISSED_S, Commons, Share
from hawker.sim.fleet.deed import BROKERS
from hawker.sim.fleet.host import Host, Place
from hawker.sim.fleet.joined import Town, Up, bundler_of, clock_of, doors_of, opened, publisher_of, shut
from hawker.sim.fleet.swift import Swift
from hawker.sim.fleet.wire import Door, WiredPeers
from hawker.sim.life import Worker
from hawker.store.observer import Observable
from hawker.up.wiring import node_handlers
from hawker.worker.assembly import operations_of, reconciler_of


class LightPlace(Place):
    @asynccontextmanager
    async def _life(self) -> AsyncIterator[Worker]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._die_with_the_store)
            parts = self._parts(self.images())
            parts = replace(parts, operations=operations_of(parts.deps, parts.runner, parts.room, Swift))
            yield Worker(parts, reconciler_of(parts), self.host, tasks)
            tasks.cancel_scope.cancel()


class LightHost(Host):
    made = LightPlace

    def _joined(self, worker: Worker) -> AbstractAsyncContextManager[Up]:
        return _joined(self._town, worker, self.place.store, self.lives)


@asynccontextmanager
async def _joined(town: Town, worker: Worker, store: Observable, life: int) -> AsyncIterator[Up]:
    me = worker.parts.node.id
    share, wired = Share(commons_of(town), me, life), WiredPeers(town.wire, me)
    parts = worker.parts
    handlers = node_handlers(parts, bundler=bundler_of(parts))
    publisher = publisher_of(cast(Catalog, share), clock_of(worker), store, parts)
    peers, broker = _doors(town, worker, handlers, publisher, wired)
    node = Up(worker=worker, parts=parts, publisher=publisher, peers=peers, broker=broker)
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
    town: Town, worker: Worker, handlers: Handlers, publisher: Publisher, wired: WiredPeers
) -> tuple[Door, Door | None]:
    if int(worker.parts.node.id, 16) <= BROKERS:
        return doors_of(town, worker, handlers, publisher, wired, commons_of(town))
    return Door(clock=clock_of(worker), handlers=handlers, tasks=worker.tasks, written=publisher.written), None


def commons_of(town: Town) -> Commons:
    assert town.commons is not None, "a light fleet has commons"
    return town.commons
