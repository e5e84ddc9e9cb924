"""The addresses of a node and who is answered there: clients, by the broker beside the worker; peers, by the worker."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hawker.api.audit import Auditor
from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import APP_LOG, APP_LOG_PAGE, AppLogLinesQuery, AppLogPage, AppLogPageQuery, LogLine
from hawker.api.contract.audit import LIST_AUDIT, AuditPage, AuditQuery
from hawker.api.directory import Directory, Node, Peers
from hawker.api.handlers import Handlers, answers
from hawker.api.in_process import InProcessCaller
from hawker.api.listener import WAITING, bind, bind_for_machines
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import Call, NoParams
from hawker.api.routes import PUBLIC_ROUTES, ROUTES
from hawker.api.server import Server
from hawker.audit.audit_log import AuditLog
from hawker.auth.audit_trail import AuditTrail
from hawker.auth.tokens import Revocations, Tokens, load_or_create_token
from hawker.clock import Clock
from hawker.config.placement import parse_labels
from hawker.deferred import deferred
from hawker.errors import CannotStart
from hawker.flyfront.operations import GraphqlHandlers
from hawker.flyfront.uiex import UiexHandlers
from hawker.gateway.alone import NoPeers, OneNode
from hawker.gateway.rate_limits import RateLimits
from hawker.gateway.tokens import TokenHandlers
from hawker.host.local_socket import listen_at
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import Preferences
from hawker.observe.metrics import ApiMetrics
from hawker.place import Place
from hawker.record.app import APPS
from hawker.record.node import NODE
from hawker.settings import Settings
from hawker.up.seat import Seat, take_seat, token_of_agent
from hawker.up.wiring import node_handlers
from hawker.value_object import ValueObject
from hawker.worker.assembly import AssembledWorker
from hawker.worker.order import HomeOfAll

if TYPE_CHECKING:
    from hawker.catalog.http import server as catalog_server
    from hawker.gateway import fleet_logs
    from hawker.http.mutual_tls import MutualTls
else:
    fleet_logs = deferred("hawker.gateway.fleet_logs")
    fleet_logs = deferred("hawker.gateway.fleet_logs")
    catalog_server = deferred("hawker.catalog.http.server")


class Doors(ValueObject, frozen=True, kw_only=True):
    """`public` is for clients, `machines` for machines of this host, `seat` has the one for peers, `catalog` is that of
    the catalog's own API."""

    public: socket.socket | None
    seat: Seat | None
    catalog: socket.socket | None = None
    machines: socket.socket | None = None

    def close(self) -> None:
        for each in (self.public, self.catalog, self.machines, self.seat.listener if self.seat else None):
            if each is not None:
                each.close()


def open_doors(settings: Settings, place: Place, clock: Clock, given: socket.socket | None, *, public: bool) -> Doors:
    """`given` is the public one that systemd has handed over. Raises `CannotStart`."""
    if settings.machine_api and not public:
        raise CannotStart("--machine-api is for a node that answers clients: a worker answers none")
    if settings.api_hostname is not None and not public:
        raise CannotStart("--api-hostname is for a node that answers clients: a worker answers none")
    seat = take_seat(settings, place, clock)
    if seat is None and not public:
        raise CannotStart("a worker is one of a cluster: give --advertise, or run `hawker join --no-start` first")
    if seat is None and settings.catalog_listen is not None:
        raise CannotStart("--catalog-listen is for a node of a cluster: give --advertise, too")
    if seat is None and settings.catalog_url is not None:
        raise CannotStart("--catalog-url is for a node of a cluster: give --advertise, too")
    if settings.catalog_url is None and settings.catalog_token_file is not None:
        raise CannotStart("--catalog-token-file is the token of an agent: give --catalog-url, too")
    token_of_agent(settings.catalog_token_file)
    if settings.catalog_listen is not None and settings.catalog_url is not None:
        raise CannotStart("--catalog-listen and --catalog-url exclude each other: the agent answers for its catalog")
    doors = Doors(public=(given or bind_public(settings.listen)) if public else None, seat=seat)
    try:
        if settings.machine_api:
            doors = msgspec.structs.replace(doors, machines=bind_for_machines())
        if settings.catalog_listen is not None:
            doors = msgspec.structs.replace(doors, catalog=catalog_server.bind(settings.catalog_listen))
    except CannotStart:
        doors.close()
        raise
    return doors


def bind_for_edge(path: Path, user: int | None) -> socket.socket:
    """The socket to which the edge of this host, which is `user`, brings calls. Raises `CannotStart`."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return listen_at(path, user, WAITING)
    except OSError as error:
        raise CannotStart(f"cannot listen at {path}: {error.strerror}") from error


def bind_public(listen: str) -> socket.socket:
    """The address for clients. Raises `CannotStart`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"--listen takes HOST:PORT, not {listen!r}")
    return bind(host.strip("[]"), int(port))


# The addresses at which a node is to be reached, all bound before anything is made: one that is taken is a refusal.


def handlers_alone(parts: AssembledWorker, own: Handlers, preferences: Preferences) -> Handlers:
    """The handlers of all `ROUTES`: orders by the market, all else by the worker itself, whose answers are `own`."""
    deps, handlers = parts.deps, Handlers()
    directory, peers = OneNode(lambda: this_node(parts)), NoPeers(parts.node.id, own, deps.clock)
    limited, registries = deps.settings.rate_limits is True, deps.settings.listed_registries
    market = MarketHandlers(directory, peers, preferences, deps.clock, limited=limited, registries=registries)
    market.bind(handlers)
    handlers.add(LogsAlone(directory, peers, deps.clock))
    for route in ROUTES:
        if handlers.missing((route,)):
            handlers.adopt(route, own)
    return handlers


class LogsAlone:
    """The logs of a fleet of one, whose mergers are made for the first question."""

    def __init__(self, directory: Directory, peers: Peers, clock: Clock) -> None:
        self._directory, self._peers, self._clock = directory, peers, clock
        self._made: fleet_logs.FleetLogs | None = None

    @property
    def _logs(self) -> "fleet_logs.FleetLogs":
        if self._made is None:
            self._made = fleet_logs.fleet_logs(self._directory, self._peers, self._clock)
        return self._made

    @answers(APP_LOG_PAGE)
    async def page(self, call: Call[AppParams, AppLogPageQuery, None]) -> AppLogPage:
        return await self._logs.page(call)

    @answers(APP_LOG)
    async def follow(self, call: Call[AppParams, AppLogLinesQuery, None]) -> AsyncIterator[LogLine]:
        return await self._logs.follow(call)

    @answers(LIST_AUDIT)
    async def audit(self, call: Call[NoParams, AuditQuery, None]) -> AuditPage:
        return await fleet_logs.fleet_audit(self._directory, self._peers).page(call)


def this_node(parts: AssembledWorker) -> Node:
    """This node as it is now."""
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


def audit_trail(stack: AsyncExitStack, place: Place, settings: Settings, clock: Clock) -> AuditTrail:
    """Open until the stack is closed. Raises `CannotStart`."""
    log = AuditLog(place.audit, clock, settings.audit_mib << 20)
    stack.callback(log.close)
    try:
        log.open()
    except OSError as error:
        raise CannotStart(f"the audit log {place.audit} cannot be opened: {error.strerror}") from error
    trail = AuditTrail(log, clock)
    stack.callback(trail.close)
    return trail


OWN_CALLS = "deploy"
"""The name in which a node makes the calls of its deploys."""


# A fleet of one: what a node that knows no others answers. Its orders go through the market.


class Front(ValueObject, frozen=True, kw_only=True):
    """`peers`, and what it shows them, is None for a node that is alone."""

    public: Server
    peers: Server | None = None
    tls: "MutualTls | None" = None
    """The certificates that nodes show each other at `peers`."""


def front_alone(place: Place, parts: AssembledWorker, preferences: Preferences, auditor: Auditor) -> Front:
    """The front of a node that knows no others: the worker's own answers, and orders in the market of one."""
    store, clock = parts.deps.store, parts.deps.clock

    def org_of(app: str) -> str | None:
        record = store.get(APPS, app)
        return None if record is None else record.org

    revocations = Revocations(store, clock)
    tokens = Tokens(load_or_create_token(place.token, clock), clock, revocations, org_of)
    own = node_handlers(parts, bundles=HomeOfAll())
    TokenHandlers(tokens, revocations, clock, lambda app: org_of(app) is not None).bind(own)
    handlers = handlers_alone(parts, own, preferences)
    parts.deps.fleet.meet(InProcessCaller(handlers, clock, OWN_CALLS))
    return Front(public=server_for_clients(parts, handlers, tokens, auditor))


def server_for_clients(parts: AssembledWorker, handlers: Handlers, tokens: Tokens, auditor: Auditor) -> Server:
    deps, limiter = parts.deps, _limiter(parts)
    answer_flyctl(handlers, deps.clock, limiter, auditor, parts.metrics.api)
    return Server(
        handlers,
        tokens,
        deps.clock,
        routes=PUBLIC_ROUTES,
        observer=parts.metrics.api,
        limiter=limiter,
        proxies=deps.settings.proxies,
        auditor=auditor,
    )


def answer_flyctl(
    handlers: Handlers, clock: Clock, limiter: RateLimits | None, auditor: Auditor | None, metrics: ApiMetrics
) -> None:
    """Bind what flyctl asks beside the Machines API to handlers that answer all of `ROUTES`."""
    behalf = OnBehalf(handlers, limiter, auditor)
    handlers.add(GraphqlHandlers(behalf, metrics.unknown_name), UiexHandlers(behalf, clock))


def _limiter(parts: AssembledWorker) -> RateLimits | None:
    """A node alone is its operator's, who has nobody to be protected from."""
    settings = parts.deps.settings
    if settings.rate_limits is False or (settings.rate_limits is None and settings.advertise is None):
        return None
    spares_root = settings.rate_limits is None
    return RateLimits(parts.deps.clock, parts.metrics.api.limited, spares_root=spares_root)
