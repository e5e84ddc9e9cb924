"""The addresses of a node and who is answered there: clients, by the broker beside the worker; peers, by the worker."""

import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.api.listener import bind
from hawker.api.route import AnyRoute
from hawker.api.routes import PEER_ROUTES, ROUTES
from hawker.api.server import MAX_BODY_BYTES, Server
from hawker.auth.revocations import Revocations
from hawker.auth.tokens import Tokens, load_or_create_token
from hawker.catalog.http import server as catalog_server
from hawker.catalog.point_reads import PointReader
from hawker.clock import Clock
from hawker.config.placement import parse_labels
from hawker.errors import CannotStart
from hawker.fleet.publish import Source
from hawker.fleet.rows import Row, revoked_row
from hawker.gateway.alone import NoPeers, OneNode
from hawker.gateway.catalog_directory import CatalogDirectory, Looks
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import BesidePeers
from hawker.gateway.rate_limits import RateLimits
from hawker.gateway.revocations import FleetRevocations
from hawker.gateway.token_handlers import TokenHandlers
from hawker.ids import NodeId
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import Preferences
from hawker.place import Place
from hawker.record.app import APPS
from hawker.record.node import NODE
from hawker.record.revocation import REVOKED
from hawker.settings import Settings
from hawker.store.contract import Reader
from hawker.up.catalog import token_of_agent
from hawker.up.fleet import InFleet, Seat, take_seat
from hawker.up.wiring import node_handlers
from hawker.worker.assembly import AssembledWorker
from hawker.worker.order import HomeOfAll


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """`public` is for clients, `seat` has the one for peers, `catalog` is that of the catalog's own API."""

    public: socket.socket | None
    seat: Seat | None
    catalog: socket.socket | None

    def close(self) -> None:
        for each in (self.public, self.catalog, self.seat.listener if self.seat else None):
            if each is not None:
                each.close()


def open_doors(settings: Settings, place: Place, clock: Clock, given: socket.socket | None, *, public: bool) -> Doors:
    """`given` is the public one that systemd has handed over. Raises `CannotStart`."""
    seat = take_seat(settings, place, clock)
    if seat is None and not public:
        raise CannotStart("a worker is one of a cluster: give --advertise, or run `hawker join --no-start` first")
    if seat is None and settings.catalog_listen is not None:
        raise CannotStart("--catalog-listen is for a node of a cluster: give --advertise, too")
    if settings.catalog_url is None and settings.catalog_token_file is not None:
        raise CannotStart("--catalog-token-file is the token of an agent: give --catalog-url, too")
    token_of_agent(settings.catalog_token_file)
    if settings.catalog_listen is not None and settings.catalog_url is not None:
        raise CannotStart("--catalog-listen and --catalog-url exclude each other: the agent answers for its catalog")
    doors = Doors(public=(given or _bind(settings.listen)) if public else None, seat=seat, catalog=None)
    if settings.catalog_listen is None:
        return doors
    try:
        return Doors(public=doors.public, seat=seat, catalog=catalog_server.bind(settings.catalog_listen))
    except CannotStart:
        doors.close()
        raise


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"--listen takes HOST:PORT, not {listen!r}")
    return bind(host.strip("[]"), int(port))


# The addresses at which a node is to be reached, all bound before anything is made: one that is taken is a refusal.


def handlers_alone(parts: AssembledWorker, own: Handlers, preferences: Preferences) -> Handlers:
    """All of `ROUTES`: orders by the market, all else by the worker itself, whose answers are `own`."""
    deps, handlers = parts.deps, Handlers()
    directory, peers = OneNode(lambda: this_node(parts)), NoPeers(parts.node.id, own, deps.clock)
    MarketHandlers(directory, peers, preferences, deps.clock, limited=deps.settings.rate_limits).bind(handlers)
    for route in ROUTES:
        if handlers.missing((route,)):
            handlers.adopt(route, own)
    return handlers


def this_node(parts: AssembledWorker) -> Node:
    """As it is now."""
    deps = parts.deps
    record = deps.store.get(NODE, "self") or parts.node
    return Node(
        id=parts.node.id,
        region=parts.node.region,
        cordoned=record.cordoned,
        draining=record.draining,
        drivers=(deps.driver.name,),
        labels=parse_labels(",".join(deps.settings.labels)),
        capacity=parts.room(),
        used=deps.table.used(deps.store),
    )


# A fleet of one: what a node that knows no others answers. Its orders go through the market.

_PEER_BODIES = 4
"""An order between nodes holds what a client sent and what its app brings along; bids for several go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """`peers` is None for a node that is alone."""

    public: Server
    peers: Server | None = None


def front_alone(place: Place, parts: AssembledWorker, preferences: Preferences) -> Front:
    """For a node that knows no others: the worker's own answers, and orders in the market of one."""
    store, clock = parts.deps.store, parts.deps.clock

    def org_of(app: str) -> str | None:
        record = store.get(APPS, app)
        return None if record is None else record.org

    revocations = Revocations(store, clock)
    tokens = Tokens(load_or_create_token(place.token, clock), clock, revocations, org_of)
    own = node_handlers(parts, bundles=HomeOfAll())
    TokenHandlers(tokens, revocations, clock, lambda app: org_of(app) is not None).bind(own)
    handlers = handlers_alone(parts, own, preferences)
    limiter = _limiter(parts)
    return Front(public=Server(handlers, tokens, clock, observer=parts.metrics.api, limiter=limiter))


def front_of_fleet(stack: AsyncExitStack, place: Place, fleet: InFleet, preferences: Preferences) -> Front:
    """Of a node in a cluster: the broker answers clients, out of the catalog and by way of all workers."""
    parts, clock, me = fleet.parts, fleet.parts.deps.clock, fleet.parts.node.id
    directory = CatalogDirectory(_looks(stack, place, fleet), clock, me, parts.node.region)
    revocations = FleetRevocations(directory.revoked, Revocations(parts.deps.store, clock))
    tokens = Tokens(load_or_create_token(place.token, clock), clock, revocations, directory.org_of)
    about_tokens = TokenHandlers(tokens, revocations, clock, lambda app: directory.org_of(app) is not None)
    own = fleet.handlers
    about_tokens.bind(own)
    fleet.peers.ask_also(directory.address_of)
    peers = BesidePeers(me, own, clock, fleet.peers, fleet.publisher.written)
    limited = parts.deps.settings.rate_limits
    market = MarketHandlers(directory, peers, preferences, clock, limited=limited)
    broker = Gateway(directory, peers, Beside(node=me, handlers=own), clock, market=market, tokens=about_tokens)
    public = Server(broker.handlers(), tokens, clock, observer=parts.metrics.api, limiter=_limiter(parts))
    return Front(public=public, peers=_for_peers(fleet, own))


def _looks(stack: AsyncExitStack, place: Place, fleet: InFleet) -> Looks:
    if fleet.kept.mirror is not None:
        return fleet.kept.mirror
    glance = PointReader(place.catalog)
    stack.callback(glance.close)
    return glance


def _for_peers(fleet: InFleet, handlers: Handlers) -> Server:
    return Server(
        handlers,
        fleet.tokens,
        fleet.parts.deps.clock,
        routes=answered_by(handlers),
        observer=fleet.parts.metrics.api,
        written=fleet.publisher.written,
        between_nodes=True,
        max_body_bytes=_PEER_BODIES * MAX_BODY_BYTES,
    )


def answered_by(handlers: Handlers) -> list[AnyRoute]:
    """Of all calls those that a worker answers."""
    return [route for route in (*ROUTES, *PEER_ROUTES) if not handlers.missing((route,))]


def revocations_of(node: NodeId, store: Reader) -> Source:
    """What was revoked here, for the whole fleet."""

    def rows(token_id: str) -> Iterable[Row]:
        found = store.get(REVOKED, token_id)
        return () if found is None else (revoked_row(node, token_id, at=found.at, by=found.by, note=found.note),)

    return Source(name=REVOKED.name, every=lambda: [key for key, _ in store.scan(REVOKED)], rows=rows)


def _limiter(parts: AssembledWorker) -> RateLimits | None:
    return RateLimits(parts.deps.clock, parts.metrics.api.limited) if parts.deps.settings.rate_limits else None
