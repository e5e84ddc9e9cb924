"""One process of the market's benchmark: a worker with the fake driver and a store on disk, or a broker over several.

A worker serves the peer API on loopback; a broker the calls that place machines, with the fleet given to it as a list
of workers. Everything between them is what a node runs: the HTTP server and client, the store, the flows.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from hawker.api.contract.app import CREATE_APP
from hawker.api.contract.machine import CREATE_MACHINE, LIST_MACHINES
from hawker.api.contract.market import LIST_PLACEMENTS, PLACE
from hawker.api.directory import Node
from hawker.api.grant import Everything, Grant
from hawker.api.handlers import Handlers
from hawker.api.listener import listening
from hawker.api.routes import PEER_ROUTES
from hawker.api.server import Server
from hawker.clock import SystemClock
from hawker.fair.sessions import SessionAtNeed, fleeting_session
from hawker.gateway.peers import HttpPeers
from hawker.host.facts import read_facts
from hawker.ids import AppName, NodeId
from hawker.image.cache import ImageCache
from hawker.log import Secret
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import load_preferences
from hawker.node import Capacity, Resources
from hawker.observe.metrics import build_metrics
from hawker.place import Place
from hawker.record.node import NodeRecord
from hawker.runtime.driver import Features
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.settings import Settings
from hawker.store.sqlite import SqliteStore
from hawker.up.build import deps_of, image_settings, parts_of
from hawker.up.wiring import node_handlers
from hawker.worker.assembly import begin, supervisor_of
from hawker.worker.format import enter

REGION = "bench"
ROOM = Capacity(cpus=4_000, memory_mib=64 << 20, disk_mib=1 << 30)
_WORKER_ROUTES = (CREATE_APP, LIST_MACHINES)
_BROKER_ROUTES = (CREATE_MACHINE, LIST_PLACEMENTS, PLACE)


class Fleet:
    """Keeps `Directory`: workers that are all alive, the first of which is the home of every app."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = {NodeId(f"{number:08x}"): url for number, url in enumerate(urls)}
        drivers, labels = ("fake",), dict[str, str]()
        self._nodes = tuple(
            Node(id=each, region=REGION, drivers=drivers, labels=labels, capacity=ROOM, used=Resources())
            for each in self.urls
        )
        self._by_id = {node.id: node for node in self._nodes}

    @property
    def region(self) -> str:
        return REGION

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def node(self, node_id: NodeId) -> Node | None:
        return self._by_id.get(node_id)

    def owner_of_machine(self, machine_id: str) -> NodeId | None:
        return None

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return None

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return [self._nodes[0].id]

    def home_of_app(self, app: AppName) -> NodeId | None:
        return self._nodes[0].id

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        return True


async def _anybody(header: str | None, source: str) -> Grant:
    return Everything("bench")


async def worker(number: int, directory: Path) -> None:
    cpus, memory_mib, disk_mib = ROOM.cpus, ROOM.memory_mib, ROOM.disk_mib
    settings = Settings(data_dir=directory, region=REGION, cpus=cpus, memory_mib=memory_mib, disk_mib=disk_mib)
    clock, place = SystemClock(), Place(directory)
    place.make()
    async with AsyncExitStack() as stack:
        store = SqliteStore(place.store)
        stack.push_async_callback(store.close)
        await enter(store)
        images = ImageCache(place.images, image_settings(settings), clock)
        stack.push_async_callback(images.aclose)
        await images.open()
        http = SessionAtNeed(fleeting_session)
        stack.push_async_callback(http.aclose)
        node = NodeRecord(id=NodeId(f"{number:08x}"), region=REGION, created_at=clock.now())
        driver = FakeDriver(FakeHost(clock), Features(rootfs=False, network=False, limits=True))
        deps = await deps_of(settings, place, driver, node.id, store, images, clock, None)
        parts = parts_of(deps, node, read_facts(), http, build_metrics("bench"), None)
        async with anyio.create_task_group() as tasks:
            await begin(tasks, parts, supervisor_of(parts), None)
            server = Server(node_handlers(parts), _anybody, clock, routes=(*_WORKER_ROUTES, *PEER_ROUTES))
            await _serve(server)


async def broker(urls: Sequence[str], market: Path | None) -> None:
    fleet, clock, handlers = Fleet(urls), SystemClock(), Handlers()
    peers = HttpPeers(fleet.urls.get, lambda: Secret("bench"))
    MarketHandlers(fleet, peers, load_preferences(market), clock, limited=False).bind(handlers)
    try:
        await _serve(Server(handlers, _anybody, clock, routes=_BROKER_ROUTES))
    finally:
        await peers.close()


async def _serve(server: Server) -> None:
    async with listening(server, "127.0.0.1", 0) as url:
        gc.freeze()
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            await anext(signals)
        os._exit(0)


def main(role: str, *arguments: str) -> None:
    if role == "worker":
        anyio.run(worker, int(arguments[0]), Path(arguments[1]), backend_options={"use_uvloop": True})
    else:
        market = Path(arguments[0]) if arguments[0] else None
        anyio.run(broker, arguments[1:], market, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
