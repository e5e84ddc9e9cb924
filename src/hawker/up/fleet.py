"""A node's part in its cluster, joined: gossip, the catalog's replica, what is told of this node, and the address where
other nodes call it. Its machines need none of it: whatever is away here, the worker works.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_network
from typing import Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from hawker import log
from hawker.api.handlers import Handlers
from hawker.api.listener import url_of
from hawker.auth.node_certificate import NodePapers
from hawker.auth.peer_key import PeerTokens, presence_key
from hawker.auth.tokens import load_or_create_token
from hawker.catalog.storage import SqliteStorage
from hawker.cluster import host_of, peer_hosts, write_cluster
from hawker.errors import CannotStart, Conflict, HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.feed import HOP_OFFSET, GatePlace, process_of
from hawker.fleet.app_bundle import AppBundler, vaults_of
from hawker.fleet.certificates import FleetCertificates
from hawker.fleet.failover import catalog_sight
from hawker.fleet.far_routes import FarRoutes
from hawker.fleet.floating import FloatingAddresses
from hawker.fleet.gossip_bridge import GossipBridge, Members
from hawker.fleet.joining import Invites
from hawker.fleet.membership import Fleet, ring_of
from hawker.fleet.mesh import MESH_HOSTS, OWN, FleetMesh, MeshHost, said
from hawker.fleet.names import FarNames, FleetNames
from hawker.fleet.presence import DaemonMark, HostAsker
from hawker.fleet.publish import ALL, COMPARE_EVERY_S, IMAGE_NAMES, IMAGES, Publisher, Source, follow, worker_sources
from hawker.fleet.quotas import QuotaExchange, quota_sources
from hawker.fleet.registry_logins import FleetLogins, login_source
from hawker.fleet.rows import NodeFacts
from hawker.gateway.peers import HttpPeers
from hawker.gossip.contract import Fate, Listener, Member, NodeMeta
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.node import GossipNode
from hawker.gossip.transport import SocketTransport, joined
from hawker.host.floating import FloatingDevice, release_all
from hawker.host.mesh.device import HostMesh, MeshKind
from hawker.host.mesh.wireguard import KeyFile
from hawker.host.process_guard import ProcessGuard
from hawker.http.mutual_tls import MutualTls
from hawker.ids import AppName, NodeId
from hawker.node import labels_of
from hawker.place import Place
from hawker.quota.tally import ObservableReader, UsageTally
from hawker.record.machine import networks_here
from hawker.store.contract import Observable
from hawker.up.catalog import NodeCatalog, agent_catalog, own_catalog
from hawker.up.fleet_wiring import deploy_watch_of, failover_of, published_by
from hawker.up.seat import Seat
from hawker.up.wiring import node_handlers
from hawker.value_object import ValueObject
from hawker.vault import Vault
from hawker.version import VERSION
from hawker.worker.assembly import AssembledWorker
from hawker.worker.edge_door import EdgeDoor
from hawker.worker.lifecycle.host_adapters import Networks
from hawker.worker.lifecycle.machine_networks import HostNetworks
from hawker.worker.names import NameBook
from hawker.worker.reconcile import Finding, Kind

_log = log.bind("hawker.up")
_LEAVE_S = 1.0
_MESH_OFFSET = 2


class InFleet(ValueObject, frozen=True, kw_only=True):
    """`handlers` is what the node answers by itself; `tokens` is whom the address for peers answers, and `papers`
    what the node shows there and elsewhere. `mesh` leads to machines of other hosts, where this host's can have that.
    """

    parts: AssembledWorker
    handlers: Handlers
    kept: NodeCatalog
    gossip: GossipNode
    peers: HttpPeers
    tokens: PeerTokens
    publisher: Publisher
    fleet: Fleet
    bundler: AppBundler
    vaults: Callable[[], Sequence[Vault]]
    papers: NodePapers
    mesh: FleetMesh | None
    far_names: FarNames


def _gossips_at(seat: Seat) -> str:
    return joined(seat.cluster.advertise, seat.cluster.peer_port)


@asynccontextmanager
async def in_fleet(
    seat: Seat, parts: AssembledWorker, store: ObservableReader, place: Place, more: Sequence[Source] = ()
) -> AsyncIterator[InFleet]:
    """Makes the node one of the cluster, until the context is left; then the others are told that it was meant. `more`
    is what else is published. Nobody else has to be there."""
    write_cluster(place.cluster, seat.cluster)
    tally = UsageTally(store, parts.quotas.count)
    told = (*more, *quota_sources(parts.node.id, store, parts.quotas, tally))
    async with AsyncExitStack() as stack:
        ours = await _joined(stack, seat, parts, store, place, told)
        gossip, catalog = ours.inside.gossip, ours.inside.kept.catalog
        tasks = await stack.enter_async_context(_tasks(gossip))
        await stack.enter_async_context(ours.inside.kept.running())
        tasks.start_soon(ours.members.serve)
        await tasks.start(ours.inside.publisher.serve)
        quotas = QuotaExchange(
            parts.node.id, store, parts.deps.clock, parts.quotas, tally, catalog, ours.inside.publisher.note
        )
        tasks.start_soon(quotas.serve)
        tasks.start_soon(ours.certificates.serve)
        tasks.start_soon(parts.deps.certificates.affirm)
        tasks.start_soon(ours.fleet.hosts.serve)
        if ours.inside.mesh is not None:
            tasks.start_soon(ours.inside.mesh.serve)
        tasks.start_soon(_presence, place, parts)
        sight = catalog_sight(parts.node, ours.fleet, catalog)
        tasks.start_soon(failover_of(parts, sight).serve)
        tasks.start_soon(deploy_watch_of(parts).serve)
        tasks.start_soon(_find_others, gossip, [peer.address for peer in seat.cluster.peers])
        _log.info("in cluster", extra={"cluster": seat.cluster.id, "gossip": _gossips_at(seat), "api": ours.api})
        yield ours.inside


class _Joined(ValueObject, frozen=True, kw_only=True):
    inside: InFleet
    fleet: Fleet
    members: Members
    certificates: FleetCertificates
    api: str


async def _joined(
    stack: AsyncExitStack, seat: Seat, parts: AssembledWorker, store: Observable, place: Place, more: Sequence[Source]
) -> _Joined:
    """All objects, of which none serves yet."""
    clock, api = parts.deps.clock, url_of(seat.listener, secured=True)
    meeting: GossipBridge[SqliteStorage] = GossipBridge()
    forgotten = seat.cluster.forgotten
    kept = await _catalog(stack, parts, place, meeting, forgotten, lambda nodes: fleet.remember(forgotten=nodes))

    async def withhold(hosts: frozenset[str]) -> None:
        await _withhold(parts.deps.networks, fleet, hosts)

    members = Members(lambda: gossip, kept.told, clock, lambda some: fleet.remember(members=some), withhold)
    gossip = _gossip(seat, parts, api, kept, meeting, members, lambda ring: fleet.remember(ring))  # noqa: PLW0108
    meeting.gossip = gossip
    root = load_or_create_token(place.token, clock)
    tokens, papers = PeerTokens(partial(_keys, gossip), root), NodePapers(parts.node.id, partial(_keys, gossip))
    peers = HttpPeers(partial(_api_of, gossip), tokens.own, me=parts.node.id, tls=MutualTls(papers))
    stack.push_async_callback(peers.close)
    fleet = _fleet_of(seat, parts, kept, gossip, peers, place)
    vaults = vaults_of(partial(_keys, gossip), clock)
    bundler = AppBundler(parts.deps.store, parts.deps.secrets, clock, parts.node.id, vaults)
    invites = Invites(parts.deps.store, clock, root, parts.node.id)
    certificates = _certificates(parts, kept, vaults)
    mesh = _mesh_of(seat, parts, kept, place, lambda: publisher.note(MESH_HOSTS, OWN))
    if mesh is not None:
        parts = replace(parts, notices=partial(_notices, parts, mesh, partial(_is_alive, gossip)))
    shown = certificates.challenges(lambda source, key: publisher.note(source, key))  # noqa: PLW0108
    own, every_s = _told_by(parts, api, certificates), None if kept.mirror is None else COMPARE_EVERY_S
    sources = (*own, shown, *(() if mesh is None else (mesh.source,)), *more)
    publisher = Publisher(kept.catalog, clock, parts.node.id, sources, compare_every_s=every_s)
    agent_findings = None if kept.check is None else lambda: _agent_findings(kept, publisher)
    handlers = node_handlers(
        parts, fleet=fleet, catalog=kept.catalog, bundler=bundler, agent_findings=agent_findings, invites=invites
    )
    logins = FleetLogins(parts.node.id, parts.deps.logins, kept.catalog, peers.to, vaults)
    parts.deps.logins.meet(logins)
    handlers.add(logins)
    far_names = _far_names(parts, kept, gossip, peers)
    handlers.add(far_names)
    follow(publisher, store, parts.changes.listen)
    parts.deps.images.listen(partial(_note_images, publisher))
    inside = InFleet(
        parts=parts,
        handlers=handlers,
        kept=kept,
        gossip=gossip,
        peers=peers,
        tokens=tokens,
        publisher=publisher,
        fleet=fleet,
        bundler=bundler,
        vaults=vaults,
        papers=papers,
        mesh=mesh,
        far_names=far_names,
    )
    return _Joined(inside=inside, fleet=fleet, members=members, certificates=certificates, api=api)


def _fleet_of(
    seat: Seat, parts: AssembledWorker, kept: NodeCatalog, gossip: GossipNode, peers: HttpPeers, place: Place
) -> Fleet:
    clock = parts.deps.clock
    return Fleet(
        cluster=seat.cluster,
        gossip=gossip,
        catalog=kept.catalog,
        forgets=kept.forgets,
        caller=peers.to,
        clock=clock,
        save=partial(write_cluster, place.cluster),
        vitals=kept.vitals,
        ask_host=HostAsker(lambda: tuple(map(presence_key, _keys(gossip))), clock),
        lost_after_s=parts.deps.settings.daemon_away_lost_s,
    )


def _far_names(parts: AssembledWorker, kept: NodeCatalog, gossip: GossipNode, peers: HttpPeers) -> FarNames:
    """Machines of other regions in the networks of here, and what theirs ask."""

    def nodes_in(region: str) -> Sequence[NodeId]:
        return [each.node for each in gossip.members() if each.fate is Fate.ALIVE and _region_of(each) == region]

    node, networks, lives = parts.node, partial(networks_here, parts.deps.store), partial(_is_alive, gossip)
    return FarNames(node.id, node.region, kept.catalog, networks, nodes_in, lives, peers.to, parts.deps.clock)


def _is_alive(gossip: GossipNode, node: NodeId) -> bool:
    member = gossip.member(node)
    return member is not None and member.fate in (Fate.ALIVE, Fate.SUSPECT)


def _notices(parts: AssembledWorker, mesh: FleetMesh, lives: Callable[[NodeId], bool]) -> list[Finding]:
    lack = [Finding(Kind.NO_MESH, "mesh", mesh.lack)] if mesh.lack else []
    silent = [Finding(Kind.SILENT_TUNNEL, node, said(tunnel)) for node, tunnel in mesh.silent if lives(node)]
    return [*parts.notices(), *lack, *silent]


def _region_of(member: Member) -> str:
    return "" if member.meta is None else member.meta.region


def _mesh_of(
    seat: Seat, parts: AssembledWorker, kept: NodeCatalog, place: Place, changed: Callable[[], None]
) -> FleetMesh | None:
    """None where machines have no network of their own, or the settings want none."""
    settings, networks = parts.deps.settings, parts.deps.networks
    if settings.mesh == "off" or not isinstance(networks, HostNetworks):
        return None
    place.mesh.mkdir(mode=0o700, exist_ok=True)
    own, port = KeyFile(place.mesh_key), settings.mesh_port or seat.cluster.peer_port + _MESH_OFFSET
    choice = tuple(MeshKind) if settings.mesh == "auto" else (MeshKind(settings.mesh),)
    device = HostMesh(parts.node.id, own.key, port, settings.mesh_mtu, place.mesh / "log", choice)
    me = MeshHost(node=parts.node.id, key=own.key.public, endpoint=joined(seat.listener.getsockname()[0], port))
    here, clock = partial(networks_here, parts.deps.store), parts.deps.clock
    mesh = FleetMesh(me, own, kept.catalog, here, device, clock, changed)
    networks.meet(mesh.known, mesh.end)
    return mesh


def _certificates(
    parts: AssembledWorker, kept: NodeCatalog, vaults: Callable[[], Sequence[Vault]]
) -> FleetCertificates:
    deps = parts.deps
    return FleetCertificates(parts.node.id, deps.certificates, deps.store, kept.catalog, vaults, deps.clock)


def _told_by(parts: AssembledWorker, api: str, certificates: FleetCertificates) -> tuple[Source, ...]:
    """What this node publishes of its own."""
    logins = login_source(parts.node.id, parts.deps.store)
    return (*worker_sources(published_by(parts), _said(parts, api)), logins, certificates.source)


async def _presence(place: Place, parts: AssembledWorker) -> None:
    """Keep alive what answers for this host, and show it for as long as this daemon lives that it does. An ephemeral
    node's ends with it."""
    guard = ProcessGuard(place.root, place.presence, parts.deps.clock, "presence")
    try:
        guard.prepare()
        held = DaemonMark(place.presence).hold()
    except OSError as error:
        _log.error("nobody answers for this host", extra={"error": str(error)})
        return
    try:
        await guard.serve()
    finally:
        os.close(held)
        if parts.deps.settings.ephemeral:
            with anyio.CancelScope(shield=True):
                await guard.end()


def names_of(fleet: InFleet, book: NameBook) -> FleetNames:
    """Tells the node's resolver of machines of others."""

    def lives(node: NodeId) -> bool:
        member = fleet.gossip.member(node)
        return member is not None and _lives(fleet, member)

    node, catalog, clock, far = fleet.parts.node, fleet.kept.catalog, fleet.parts.deps.clock, fleet.far_names
    return FleetNames(node.id, catalog, book.networks, lives, book.tell_others, clock, far.known, book.tell_peers)


def join_edge(fleet: InFleet, seat: Seat, door: EdgeDoor) -> FarRoutes:
    """The node's edge and those of others serve each other's machines from now on. Returns what tells ours of them."""
    me = fleet.parts.node.id
    host = seat.listener.getsockname()[0]
    door.join(GatePlace(node=me, host=host, port=seat.cluster.peer_port + HOP_OFFSET), fleet.papers)

    def gate_of(node: NodeId, app: AppName) -> GatePlace | None:
        member = fleet.gossip.member(node)
        if member is None or not _lives(fleet, member):
            return None
        port, processes = int(member.address.rpartition(":")[2]), 1 if member.meta is None else member.meta.edges
        offset = HOP_OFFSET + process_of(app, max(1, processes))
        return GatePlace(node=node, host=host_of(member.address), port=port + offset)

    def round_trip_s(node: NodeId) -> float:
        member = fleet.gossip.member(node)
        return 0.0 if member is None else member.rtt_s

    parts, networks = fleet.parts, partial(networks_here, fleet.parts.deps.store)
    where, wanted, tell = (me, parts.node.region), lambda: door.serves_far, door.tell_far
    return FarRoutes(*where, fleet.kept.catalog, gate_of, wanted, networks, tell, parts.deps.clock, round_trip_s)


async def serve_floating(fleet: InFleet, seat: Seat, place: Place) -> None:
    """This host's part of the region's floating addresses, until cancelled. Where it takes none, what it had goes."""
    parts = fleet.parts
    if not _floats(parts):
        with suppress(OSError, ValueError):
            await in_thread(Pool.HOST, release_all, place.floating)
        return
    me, region = parts.node.id, parts.node.region

    def edges() -> frozenset[NodeId]:
        members = fleet.gossip.members()
        there = (each.node for each in members if each.meta and each.meta.floats and each.meta.region == region)
        return frozenset([me, *there]) - {each.node for each in members if each.node != me and not _lives(fleet, each)}

    networks = map(ip_network, parts.deps.settings.floating_addresses)
    device = FloatingDevice(place.floating, str(seat.listener.getsockname()[0]))
    await FloatingAddresses(me, networks, fleet.kept.catalog, edges, device, parts.deps.clock).serve()


def _floats(parts: AssembledWorker) -> bool:
    settings = parts.deps.settings
    return bool(settings.floating_addresses and settings.published_at) and os.geteuid() == 0


def _lives(fleet: InFleet, member: Member) -> bool:
    """The node, or its host without its daemon: its machines and its edge go on."""
    if member.fate in (Fate.ALIVE, Fate.SUSPECT):
        return True
    return member.fate is Fate.DOWN and fleet.fleet.hosts.is_away(member.node)


async def _agent_findings(kept: NodeCatalog, publisher: Publisher) -> Sequence[str]:
    """What the agent shows of itself; where that is nothing, what goes wrong with it all the same."""
    assert kept.check is not None and kept.mirror is not None
    return await kept.check.findings() or [*kept.mirror.troubles, *publisher.troubles]


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
    """Gossips until cancelled. A node that is refused by those who were there before cannot go on: raises
    `CannotStart`."""
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
    stack: AsyncExitStack,
    parts: AssembledWorker,
    place: Place,
    meeting: GossipBridge[SqliteStorage],
    forgotten: Mapping[NodeId, int],
    save: Callable[[Mapping[NodeId, int]], None],
) -> NodeCatalog:
    deps = parts.deps
    if deps.settings.catalog_url is not None:
        return await agent_catalog(stack, deps.settings, deps.clock, parts.node.id, meeting, forgotten, save)
    storage = await in_thread(Pool.REPLICA, SqliteStorage, place.catalog, parts.node.id, deps.clock)
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
        transport=SocketTransport(_gossips_at(seat), parts.deps.clock),
        advertise=_gossips_at(seat),
        meta=NodeMeta(
            region=parts.node.region,
            api=api,
            catalog=kept.schema,
            version=VERSION,
            floats=_floats(parts),
            edges=parts.deps.settings.edge_processes,
        ),
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


async def _withhold(networks: Networks | None, fleet: Fleet, hosts: frozenset[str]) -> None:
    """Also who was a member once and has not been heard of since this node began."""
    if networks is not None:
        heard = {member.node for member in fleet.members}
        await networks.withhold(hosts | peer_hosts(peer for peer in fleet.peers if peer.node not in heard))


def _said(parts: AssembledWorker, api: str) -> NodeFacts:
    return NodeFacts(
        api=api,
        version=VERSION,
        drivers=(parts.deps.driver.name,),
        labels=labels_of(parts.deps.settings.labels),
        started_at=parts.started_at,
    )


def _note_images(publisher: Publisher) -> None:
    for source in (IMAGES, IMAGE_NAMES):
        publisher.note(source, ALL)


def _keys(gossip: GossipNode) -> list[bytes]:
    ring = gossip.keyring
    return [ring.keys[ring.primary], *(key for number, key in ring.keys.items() if number != ring.primary)]


def _api_of(gossip: GossipNode, node: NodeId) -> str | None:
    member: Member | None = gossip.member(node)
    return member.meta.api if member is not None and member.meta is not None else None
