"""A node's part in its cluster, joined: gossip, the catalog's replica, what is told of this node, and the address where
other nodes call it. Its machines need none of it: whatever is away here, the worker works.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Protocol

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskGroup, TaskStatus

from hawker import log
from hawker.api.handlers import Handlers
from hawker.api.listener import bind, url_of
from hawker.api.server import PROGRAM_VERSION
from hawker.auth.peer_tokens import PeerTokens
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.cluster import USUAL_PEER_PORT, Cluster, found_cluster, read_cluster, write_cluster
from hawker.errors import CannotStart, Conflict, HawkerError
from hawker.fleet.app_bundle import AppBundler, vaults_of
from hawker.fleet.failover_view import catalog_sight
from hawker.fleet.gossip_bridge import GossipBridge
from hawker.fleet.members import Members
from hawker.fleet.membership import Fleet, ring_of
from hawker.fleet.publish import Publisher, Source
from hawker.fleet.rows import NodeFacts
from hawker.fleet.sources import follow, worker_sources
from hawker.gateway.peers import HttpPeers
from hawker.gossip.contract import Member, NodeMeta
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.listener import Listener
from hawker.gossip.node import GossipNode
from hawker.gossip.transport import SocketTransport, joined
from hawker.ids import NodeId
from hawker.node import labels_of
from hawker.place import Place
from hawker.settings import Settings
from hawker.store.observer import Observable
from hawker.up.catalog import NodeCatalog, agent_catalog, own_catalog, token_of_agent
from hawker.up.wiring import failover_of, node_handlers, published_by
from hawker.worker.assembly import AssembledWorker

_log = log.bind("hawker.up")
_LEAVE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A node's place in a cluster, before it begins: what it knows, and the address for its peers, which is bound."""

    cluster: Cluster
    listener: socket

    @property
    def gossips_at(self) -> str:
        return joined(self.cluster.advertise, self.cluster.peer_port)


def cluster_of(settings: Settings, place: Place, clock: Clock) -> Cluster | None:
    """None for a node that is alone. Each setting that is given wins over what cluster.json has."""
    known, host = read_cluster(place.cluster), settings.advertise
    if known is None and host is None:
        return None
    if known is None:
        known = found_cluster(clock, advertise=(host or "").strip("[]"), peer_port=USUAL_PEER_PORT)
    return msgspec.structs.replace(
        known,
        advertise=known.advertise if host is None else host.strip("[]"),
        peer_port=settings.peer_port or known.peer_port,
    )


def take_seat(settings: Settings, place: Place, clock: Clock) -> Seat | None:
    """None for a node that is alone. Writes nothing. Raises `CannotStart`."""
    cluster = cluster_of(settings, place, clock)
    if cluster is None:
        return None
    try:
        return Seat(cluster=cluster, listener=bind(cluster.advertise, cluster.peer_port + 1))
    except CannotStart as error:
        text = f"{error}".replace("--listen", "--advertise and --peer-port")
        raise CannotStart(f"the address for other nodes: {text}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class InFleet:
    """`handlers` is what the node answers by itself; `tokens` is whom the address for peers answers."""

    parts: AssembledWorker
    handlers: Handlers
    kept: NodeCatalog
    gossip: GossipNode
    peers: HttpPeers
    tokens: PeerTokens
    publisher: Publisher


@asynccontextmanager
async def in_fleet(
    seat: Seat, parts: AssembledWorker, store: Observable, place: Place, more: Sequence[Source] = ()
) -> AsyncIterator[InFleet]:
    """One of the cluster, until the context is left; then the others are told that it was meant. `more` is what else is
    published. Nobody else has to be there."""
    write_cluster(place.cluster, seat.cluster)
    async with AsyncExitStack() as stack:
        joined = await _joined(stack, seat, parts, store, place, more)
        gossip, catalog = joined.inside.gossip, joined.inside.kept.catalog
        tasks = await stack.enter_async_context(_tasks(gossip))
        await stack.enter_async_context(joined.inside.kept.running())
        tasks.start_soon(joined.members.serve)
        await tasks.start(joined.inside.publisher.serve)
        sight = catalog_sight(parts.node, joined.fleet, catalog)
        tasks.start_soon(failover_of(parts, sight).serve)
        tasks.start_soon(_find_others, gossip, [peer.address for peer in seat.cluster.peers])
        _log.info("in cluster", extra={"cluster": seat.cluster.id, "gossip": seat.gossips_at, "api": joined.api})
        yield joined.inside


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    inside: InFleet
    fleet: Fleet
    members: Members
    api: str


async def _joined(
    stack: AsyncExitStack, seat: Seat, parts: AssembledWorker, store: Observable, place: Place, more: Sequence[Source]
) -> _Joined:
    """All objects, of which none serves yet."""
    clock, api = parts.deps.clock, url_of(seat.listener)
    meeting: GossipBridge[SqliteStorage] = GossipBridge()
    kept = await _catalog(stack, parts, place, meeting)
    members = Members(lambda: gossip, kept.told, clock, lambda some: fleet.remember(members=some))
    gossip = _gossip(seat, parts, api, kept, meeting, members, lambda ring: fleet.remember(ring))  # noqa: PLW0108
    meeting.gossip = gossip
    tokens = PeerTokens(partial(_keys, gossip))
    peers = HttpPeers(partial(_api_of, gossip), tokens.own)
    stack.push_async_callback(peers.close)
    fleet = Fleet(
        cluster=seat.cluster,
        gossip=gossip,
        catalog=kept.catalog,
        forgets=kept.forgets,
        caller=lambda node, behalf: peers.caller(node, behalf=behalf),
        clock=clock,
        save=partial(write_cluster, place.cluster),
        vitals=kept.vitals,
    )
    vaults = vaults_of(partial(_keys, gossip), clock)
    bundler = AppBundler(parts.deps.store, parts.deps.secrets, clock, parts.node.id, vaults)
    handlers = node_handlers(parts, fleet=fleet, catalog=kept.catalog, bundler=bundler)
    sources = (*worker_sources(published_by(parts), _said(parts, api)), *more)
    publisher = Publisher(kept.catalog, clock, parts.node.id, sources)
    follow(publisher, store, parts.changes.listen)
    inside = InFleet(
        parts=parts,
        handlers=handlers,
        kept=kept,
        gossip=gossip,
        peers=peers,
        tokens=tokens,
        publisher=publisher,
    )
    return _Joined(inside=inside, fleet=fleet, members=members, api=api)


@asynccontextmanager
async def _tasks(gossip: GossipNode) -> AsyncIterator[TaskGroup]:
    """What serves meanwhile. At the end the others are told before it stops."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(gossiping, gossip)
        yield tasks
        with anyio.move_on_after(_LEAVE_S):
            await gossip.leave()
        tasks.cancel_scope.cancel()


class Gossips(Protocol):
    """The part of a `GossipNode` that serves."""

    async def serve(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None: ...


async def gossiping(gossip: Gossips, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
    """Until cancelled. A node that is refused by those who were there before cannot go on: raises `CannotStart`."""
    try:
        await gossip.serve(task_status=task_status)
    except (Conflict, ExceptionGroup) as error:
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        if not isinstance(cause, Conflict):
            raise
        raise CannotStart(
            f"the cluster does not let this node in: {cause}; if this data directory is a copy of that node's, stop one"
            " of the two for good, and let a new host join with an empty data directory"
        ) from error


async def _catalog(
    stack: AsyncExitStack, parts: AssembledWorker, place: Place, meeting: GossipBridge[SqliteStorage]
) -> NodeCatalog:
    deps = parts.deps
    if deps.settings.catalog_url is not None:
        token = token_of_agent(deps.settings.catalog_token_file)
        return await agent_catalog(stack, deps.settings.catalog_url, deps.clock, token)
    storage = await to_thread.run_sync(SqliteStorage, place.catalog, parts.node.id, deps.clock)
    return own_catalog(storage, parts.node, place, deps.clock, meeting)


def _gossip(
    seat: Seat,
    parts: AssembledWorker,
    api: str,
    kept: NodeCatalog,
    meeting: GossipBridge[SqliteStorage],
    members: Members,
    remember: Callable[[GossipKeyring], None],
) -> GossipNode:
    listener = Listener(
        on_member=members.heard,
        on_message=meeting.on_message,
        on_request=meeting.on_request,
        on_forget=meeting.on_forget,
        on_keyring=remember,
    )
    return GossipNode(
        node=parts.node.id,
        cluster=seat.cluster.id,
        keyring=ring_of(seat.cluster.keyring),
        transport=SocketTransport(seat.gossips_at),
        advertise=seat.gossips_at,
        meta=NodeMeta(region=parts.node.region, api=api, catalog=kept.schema, version=PROGRAM_VERSION),
        clock=parts.deps.clock,
        listener=listener,
        fences=kept.fences,
    )


async def _find_others(gossip: GossipNode, seeds: Sequence[str]) -> None:
    """Gossip goes on trying by itself."""
    if not seeds:
        return
    try:
        await gossip.join(seeds)
    except HawkerError as error:
        _log.warning("no other node was found yet", extra={"error": str(error)})


def _said(parts: AssembledWorker, api: str) -> NodeFacts:
    return NodeFacts(
        api=api,
        version=PROGRAM_VERSION,
        drivers=(parts.deps.driver.name,),
        labels=labels_of(parts.deps.settings.labels),
        started_at=parts.started_at,
    )


def _keys(gossip: GossipNode) -> list[bytes]:
    ring = gossip.keyring
    return [ring.keys[ring.primary], *(key for number, key in ring.keys.items() if number != ring.primary)]


def _api_of(gossip: GossipNode, node: NodeId) -> str | None:
    member: Member | None = gossip.member(node)
    return member.meta.api if member is not None and member.meta is not None else None
