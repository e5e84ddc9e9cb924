"""One life of a node in a simulated fleet: what `up` joins, with a network in memory and a played wire in the place of
sockets, and no thread: the catalog's calls are made where its worker stands. A kit says who makes each part beside the
worker; a planted bug is a kit with one other part.
"""

import base64
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel

from hawker.api.directory import Peers
from hawker.api.handlers import Handlers
from hawker.auth.tokens import Revocations, Tokens
from hawker.catalog.change import Scope
from hawker.catalog.contract import Catalog
from hawker.catalog.reads import PointReader
from hawker.catalog.replica import Replica
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.cluster import Cluster, Keyring
from hawker.errors import HawkerError
from hawker.fleet.app_bundle import AppBundler, vaults_of
from hawker.fleet.failover import Failover, FailoverView, catalog_sight
from hawker.fleet.gossip_bridge import GossipBridge, Members, MembersToReplica
from hawker.fleet.membership import Fleet, ring_of
from hawker.fleet.publish import Publisher, follow, worker_sources
from hawker.fleet.rows import NodeFacts
from hawker.gateway.catalog_directory import CatalogDirectory, Looks
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import BesidePeers
from hawker.gateway.tokens import FleetRevocations, TokenHandlers
from hawker.gossip.contract import Listener, NodeMeta
from hawker.gossip.memory_network import MemoryNetwork
from hawker.gossip.node import GossipNode
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import preferences
from hawker.sim.fleet.network import CallNetwork, SimEndpoint, SimPeers
from hawker.sim.fleet.shared_catalog import SharedCatalog
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.store.contract import Observable, Store
from hawker.up.fleet_wiring import failover_of, published_by
from hawker.up.wiring import node_handlers
from hawker.value_object import ValueObject
from hawker.worker.assembly import AssembledWorker


class Makes(Protocol):
    """Opens the catalog of a node."""

    def __call__(self, path: Path, node: NodeId, clock: Clock, *, boot: Callable[[], str]) -> SqliteStorage: ...


def _store(store: Store) -> Store:
    return store


def _peers(peers: Peers) -> Peers:
    return peers


def _sight(sight: FailoverView) -> FailoverView:
    return sight


def _storage(path: Path, node: NodeId, clock: Clock, *, boot: Callable[[], str]) -> SqliteStorage:
    return SqliteStorage(path, node, clock, boot=boot)


class FleetKit(ValueObject, frozen=True, kw_only=True):
    """Each is called once in every life of a daemon. `peers` is how its broker reaches workers, `sight` what it sees of
    what its spares stand by for."""

    worker: WorkerKit = SOUND
    store: Callable[[Store], Store] = _store
    peers: Callable[[Peers], Peers] = _peers
    sight: Callable[[FailoverView], FailoverView] = _sight
    storage: Makes = _storage


SOUND_FLEET = FleetKit()


class FakeCatalogDisk:
    """Each life that was killed leaves a copy of what was committed, for the next one; its own file is closed in good
    order afterwards, where nobody looks. After a power cut the file cannot prove that it is whole."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._copies = self._boots = 0
        self._here = self._fresh()

    @property
    def file(self) -> Path:
        return self._here / "catalog.db"

    @property
    def boot(self) -> str:
        return f"boot {self._boots}"

    def kill(self) -> None:
        """While the file is still open."""
        fresh = self._fresh()
        shutil.copytree(self._here, fresh, dirs_exist_ok=True)
        self._here = fresh

    def reboot(self) -> None:
        self._boots += 1

    def _fresh(self) -> Path:
        self._copies += 1
        fresh = self._place / str(self._copies)
        fresh.mkdir(parents=True)
        return fresh


T = TypeVar("T")

KEY = bytes(range(32))
CLUSTER = "0123456789abcdef"
_LEAVE_S = 1.0
_ROOT = Secret("hwk_of-a-simulated-fleet")


class SimCluster(ValueObject, frozen=True, kw_only=True):
    """What all nodes share. `seeds` are where a node looks for others; nodes of a light fleet share one catalog."""

    network: MemoryNetwork
    call_network: CallNetwork
    kit: FleetKit
    seeds: Sequence[str]
    shared_catalog: SharedCatalog | None = None


class LiveNode(ValueObject, frozen=True, kw_only=True):
    """A node that is up: its worker, who tells of it, and who answers there. Not all of a light fleet have a broker."""

    worker: SimWorker
    parts: AssembledWorker
    publisher: Publisher
    peers: SimEndpoint
    broker: SimEndpoint | None


class GossipingNode(LiveNode, frozen=True, kw_only=True):
    """One that gossips and has a replica of the catalog."""

    storage: SqliteStorage
    replica: Replica[SqliteStorage]
    gossip: GossipNode
    fleet: Fleet
    members: Members


async def inline(work: Callable[[], T]) -> T:
    """A turn of the loop, and the work, whole."""
    with anyio.CancelScope(shield=True):
        await anyio.lowlevel.checkpoint()
    return work()


def address_of(node: NodeId) -> str:
    return f"{node}.test:4281"


@asynccontextmanager
async def joined(
    cluster: SimCluster, worker: SimWorker, store: Observable, catalog_disk: FakeCatalogDisk
) -> AsyncIterator[GossipingNode]:
    """One of the fleet until the context is left. The worker's tasks serve it, and die with it."""
    async with AsyncExitStack() as stack:
        node = _joined(stack, cluster, worker, store, catalog_disk)
        await worker.tasks.start(node.gossip.serve)
        await stack.enter_async_context(node.replica.running())
        worker.tasks.start_soon(node.members.serve)
        await worker.tasks.start(node.publisher.serve)
        worker.tasks.start_soon(_sentinel(cluster, node).serve)
        worker.tasks.start_soon(_find_others, node.gossip, cluster.seeds)
        me = node.parts.node.id
        opened(cluster.call_network, me, node)
        try:
            yield node
        finally:
            shut(cluster.call_network, me, node)
        with anyio.move_on_after(_LEAVE_S):
            await node.gossip.leave()


def opened(call_network: CallNetwork, me: NodeId, node: LiveNode) -> None:
    call_network.peers[me] = node.peers
    if node.broker is not None:
        call_network.brokers[me] = node.broker


def shut(call_network: CallNetwork, me: NodeId, node: LiveNode) -> None:
    """Nobody is answered any more, and who was being served hears so."""
    if call_network.peers.get(me) is node.peers:
        del call_network.peers[me]
        call_network.brokers.pop(me, None)
    node.peers.over.set()
    if node.broker is not None:
        node.broker.over.set()


def _joined(
    stack: AsyncExitStack, cluster: SimCluster, worker: SimWorker, store: Observable, catalog_disk: FakeCatalogDisk
) -> GossipingNode:
    parts, clock, me = worker.parts, clock_of(worker), worker.parts.node.id
    meeting: GossipBridge[SqliteStorage] = GossipBridge()
    storage = cluster.kit.storage(catalog_disk.file, me, clock, boot=lambda: catalog_disk.boot)
    region = parts.node.region
    replica = Replica(me, region, storage, clock, send=meeting.send, ask=meeting.ask, run=inline)
    meeting.replica = replica
    members = Members(lambda: gossip, MembersToReplica(replica), clock, lambda some: None)
    gossip = _gossip(cluster, parts, clock, storage, meeting, members)
    meeting.gossip = gossip
    wired = SimPeers(cluster.call_network, me)
    fleet = Fleet(
        cluster=_cluster(me),
        gossip=gossip,
        catalog=replica,
        forgets=replica,
        caller=lambda node, behalf: wired.caller(node, behalf=behalf),
        clock=clock,
        save=lambda cluster: None,
    )
    handlers = node_handlers(parts, fleet=fleet, catalog=replica, bundler=bundler_of(parts))
    publisher = publisher_of(replica, clock, store, parts)
    glance = PointReader(catalog_disk.file)
    stack.callback(glance.close)
    peers, broker = endpoints_of(cluster, worker, handlers, publisher, wired, glance)
    return GossipingNode(
        worker=worker,
        parts=parts,
        storage=storage,
        replica=replica,
        gossip=gossip,
        publisher=publisher,
        fleet=fleet,
        members=members,
        peers=peers,
        broker=broker,
    )


def bundler_of(parts: AssembledWorker) -> AppBundler:
    deps = parts.deps
    return AppBundler(deps.store, deps.secrets, deps.clock, parts.node.id, vaults_of(lambda: [KEY], deps.clock))


def publisher_of(catalog: Catalog, clock: LoopClock, store: Observable, parts: AssembledWorker) -> Publisher:
    """It hears of every change."""
    me, drivers = parts.node.id, (parts.deps.driver.name,)
    said = NodeFacts(api=f"http://{me}", version="sim", drivers=drivers, labels={}, started_at=0.0)
    publisher = Publisher(catalog, clock, me, worker_sources(published_by(parts), said))
    follow(publisher, store, parts.changes.listen)
    return publisher


def endpoints_of(
    cluster: SimCluster, worker: SimWorker, own: Handlers, publisher: Publisher, wired: SimPeers, looks: Looks
) -> tuple[SimEndpoint, SimEndpoint]:
    """The worker's and the broker's, as `up.fleet_front` makes them."""
    parts, clock = worker.parts, clock_of(worker)
    me, store = parts.node.id, parts.deps.store
    directory = CatalogDirectory(looks, clock, me, parts.node.region)
    revocations = FleetRevocations(directory, Revocations(store, clock))
    tokens = TokenHandlers(
        Tokens(_ROOT, clock, revocations, directory.org_of),
        revocations,
        clock,
        lambda app: directory.org_of(app) is not None,
    )
    tokens.bind(own)
    peers = cluster.kit.peers(BesidePeers(me, own, clock, wired, publisher.written))
    market = MarketHandlers(directory, peers, preferences(), clock, limited=False)
    broker = Gateway(directory, peers, Beside(node=me, handlers=own), clock, market=market, tokens=tokens)
    return (
        SimEndpoint(clock=clock, handlers=own, tasks=worker.tasks, written=publisher.written),
        SimEndpoint(clock=clock, handlers=broker.handlers(), tasks=worker.tasks),
    )


def _gossip(
    cluster: SimCluster,
    parts: AssembledWorker,
    clock: LoopClock,
    storage: SqliteStorage,
    meeting: GossipBridge[SqliteStorage],
    members: Members,
) -> GossipNode:
    me = parts.node.id
    positions = storage.positions(Scope.GLOBAL)
    return GossipNode(
        node=me,
        cluster=CLUSTER,
        keyring=ring_of(_cluster(me).keyring),
        transport=cluster.network.transport(address_of(me)),
        advertise=address_of(me),
        meta=NodeMeta(region=parts.node.region, api=f"http://{me}", catalog=storage.schema_fingerprint, version="sim"),
        clock=clock,
        listener=Listener(
            on_member=members.heard,
            on_message=meeting.on_message,
            on_request=meeting.on_request,
            on_forget=meeting.on_forget,
        ),
        fences={origin: position.fence for origin, position in positions.items() if position.fence >= 0},
    )


def _sentinel(cluster: SimCluster, node: GossipingNode) -> Failover:
    sight = catalog_sight(node.parts.node, node.fleet, node.replica)
    return failover_of(node.parts, cluster.kit.sight(sight))


async def _find_others(gossip: GossipNode, seeds: Sequence[str]) -> None:
    try:
        await gossip.join(seeds)
    except HawkerError:
        return  # gossip goes on trying by itself


def _cluster(me: NodeId) -> Cluster:
    keyring = Keyring(keys={"1": base64.b64encode(KEY).decode()}, primary=1)
    return Cluster(id=CLUSTER, keyring=keyring, advertise=f"{me}.test", peer_port=4281)


def clock_of(worker: SimWorker) -> LoopClock:
    clock = worker.parts.deps.clock
    assert isinstance(clock, LoopClock)
    return clock
