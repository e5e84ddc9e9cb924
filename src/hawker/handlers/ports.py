"""Answers about ports of machines: to who wants a connection to one, which the node dials; and about published ports:
what configs ask for, beside what the edge of the host says.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.port import (
    EXPLAIN_ROUTE,
    LIST_EDGE_ADDRESSES,
    LIST_PUBLISHED_PORTS,
    MACHINE_PORT,
    NOT_YET,
    CandidateState,
    EdgeAddress,
    ExplainQuery,
    FromClient,
    FromPort,
    ListenerState,
    PortOpened,
    PortRequest,
    PublishedPortState,
    RouteExplanation,
)
from hawker.api.handlers import Handlers, SocketChannel, answers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.config import PUBLISH, Service
from hawker.config.machine import Port
from hawker.deferred import deferred
from hawker.errors import HawkerError, Unavailable, Unprocessable, WrongState
from hawker.fair.table import PORT_CONNECTIONS, PORT_CONNECTIONS_OF_CALLER
from hawker.fair.turns import Turns
from hawker.feed import (
    ENDS_TLS,
    EVERYWHERE,
    ListenState,
)
from hawker.handlers.machines import MachineFinder
from hawker.machine import State
from hawker.names import is_private_address
from hawker.record.machine import MachineRecord
from hawker.record.node import NODE, NodeRecord
from hawker.route_question import AskedRequest, ExplainedDoor, RouteCandidate
from hawker.runtime.driver import Driver
from hawker.store.contract import Store
from hawker.value_object import ValueObject
from hawker.worker.apps import AppTable
from hawker.worker.edge_door import hosts_of, published_at
from hawker.worker.edge_line import EdgeLine

if TYPE_CHECKING:
    from hawker.api import relay as relaying
else:
    relaying = deferred("hawker.api.relay")

Dial: TypeAlias = Callable[[str, int], Any]
"""Returns a `ByteStream` when awaited. Raises `OSError`."""
_CONNECT_S = 5.0
_LOOK_S = 2.0


async def dial(host: str, port: int) -> ByteStream:
    return await anyio.connect_tcp(host, port)


class MachinePortHandlers:
    def __init__(self, machines: MachineFinder, driver: Driver, connect: Dial = dial) -> None:
        self._machines = machines
        self._driver = driver
        self._connect = connect
        self._of_app, self._of_caller = Turns(PORT_CONNECTIONS), Turns(PORT_CONNECTIONS_OF_CALLER)

    @answers(MACHINE_PORT)
    async def connect(
        self, call: Call[MachineParams, NoQuery, PortRequest], channel: SocketChannel[FromPort, FromClient]
    ) -> None:
        record = self._machines.find(call.params)
        if record.state is not State.STARTED:
            raise WrongState(f"machine {record.id} is {record.state}: nothing in it takes connections")
        with self._of_caller.hold_now(call.share), self._of_app.hold_now(record.app):
            async with self._opened(record, call.body.port) as (address, stream):
                await channel.send(PortOpened(address=address))
                await relaying.relay(channel, stream)

    @asynccontextmanager
    async def _opened(self, record: MachineRecord, port: int) -> AsyncIterator[tuple[str, ByteStream]]:
        """Raises `Unavailable` when nothing in the machine takes the connection."""
        hosts = hosts_of(record, own=self._driver.features.network)
        for host in hosts:
            try:
                with anyio.fail_after(_CONNECT_S):
                    stream = await self._connect(host, port)
            except OSError:  # a timeout, too
                continue
            async with stream:
                yield host, stream
            return
        raise Unavailable(await self._why(record, hosts, port))

    async def _why(self, record: MachineRecord, hosts: Sequence[str], port: int) -> str:
        """What in the machine listens at that port tells most."""
        refused = f"machine {record.id} takes no connection on port {port} at {' or '.join(hosts)}"
        found = await self._listening_at(record, port)
        if found:
            return f"{refused}: its program listens on {', '.join(found)} only, let it listen on 0.0.0.0 or ::"
        return f"{refused}: does a program in it listen there, on 0.0.0.0 or ::?"

    async def _listening_at(self, record: MachineRecord, port: int) -> tuple[str, ...]:
        try:
            with anyio.fail_after(_LOOK_S):
                processes = await self._driver.processes(record.id)
        except (HawkerError, TimeoutError):
            return ()
        sockets = (
            socket.address for process in processes for socket in process.sockets if socket.proto.startswith("tcp")
        )
        return tuple(sorted({address for address in sockets if address.rpartition(":")[2] == str(port)}))


_HTTP = frozenset({"http", "edge_http"})
_SCHEMES = frozenset({"http", "https", "tcp", "tls", "udp"})
_PORTS = {"http": 80, "https": 443}
_MAX_HOST = 253
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
_NOWHERE = "machines of this node may not publish there: see --edge-address"
_TAKEN = "another app of this host has published it before"


class PublishedPortHandlers:
    """The answers about published ports of `node`; `addresses` are where machines may publish."""

    def __init__(
        self,
        node: NodeRecord,
        store: Store,
        apps: AppTable,
        machines: MachineFinder,
        edge: EdgeLine,
        addresses: tuple[str, ...],
    ) -> None:
        self._node = node
        self._store = store
        self._apps = apps
        self._machines = machines
        self._edge = edge
        self._addresses = addresses

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_PUBLISHED_PORTS, self.list)
        handlers.on(EXPLAIN_ROUTE, self.explain)
        handlers.on(LIST_EDGE_ADDRESSES, self.addresses)

    async def list(self, call: Call[MachineParams, NoQuery, None]) -> tuple[PublishedPortState, ...]:
        record = self._machines.find(call.params)
        states = (await self._edge.report()).bound if self._edge.is_up else ()
        return tuple(published_ports(record, self._addresses, states))

    async def explain(self, call: Call[AppParams, ExplainQuery, None]) -> RouteExplanation:
        app, asked = self._apps.get(self._store, call.params.app_name), place_of(call.query.url)
        request = request_of(call.query)
        doors = await self._edge.explain(
            app.name, asked.host, asked.port, tls=asked.tls, udp=asked.udp, request=request
        )
        return RouteExplanation(
            url=call.query.url,
            app=app.name,
            listeners=tuple(map(_listener, doors)),
            node=self._node.id,
            region=self._node.region,
        )

    async def addresses(self, call: Call[NoParams, NoQuery, None]) -> tuple[EdgeAddress, ...]:
        """The addresses of the host's edge. Without an edge nothing is said, not that nothing is served: it may be
        about to find the daemon again."""
        if not self._edge.is_up:
            raise WrongState("the edge of this host is not there: it begins with the first machine that needs it")
        node = self._store.get(NODE, "self")
        return edge_addresses((await self._edge.report()).bound, leaving=node is not None and node.draining)


def edge_addresses(states: Iterable[ListenState], *, leaving: bool) -> tuple[EdgeAddress, ...]:
    """The addresses at which the edge listens, in order. One port that listens is enough: another one may be taken by a
    program of the host. Private addresses are no router's. Of a node that is `leaving` all are down: other hosts have
    machines of the apps, or will."""
    found: dict[str, EdgeAddress] = {}
    for state in states:
        if not state.owned or is_private_address(state.address):
            continue
        why = "the node is draining" if leaving else state.refused
        before = found.get(state.address)
        if before is None or not before.up:
            found[state.address] = EdgeAddress(ip=state.address, app=state.app, up=not why, why=why)
    return tuple(found[ip] for ip in sorted(found, key=lambda ip: (":" in ip, ip_address(ip).packed)))


class AskedPlace(ValueObject, frozen=True):
    host: str
    """A host name or an IP address without brackets and without a dot at its end."""
    port: int
    """The port, 1 to 65535; that of the scheme where the URL has none."""
    tls: bool
    """The client begins with TLS."""
    udp: bool
    """The client sends datagrams."""


def place_of(url: str) -> AskedPlace:
    """The place to which a client of the URL goes. Raises `Unprocessable`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Unprocessable(f"url: {url!r:.200} is no URL: {error}") from error
    if parts.scheme not in _SCHEMES or not host or len(host) > _MAX_HOST:
        raise Unprocessable(f"url: {url!r:.200} must be http://, https://, tcp://, tls:// or udp:// with a host")
    port = port or _PORTS.get(parts.scheme)
    if not port:
        raise Unprocessable(f"url: {url!r:.200} needs a port")
    return AskedPlace(host.rstrip("."), port, parts.scheme in ("https", "tls"), parts.scheme == "udp")


def request_of(asked: ExplainQuery) -> AskedRequest:
    """The request that a client of the URL sends. Raises `Unprocessable`."""
    parts = urlsplit(asked.url)
    said = {"method": asked.method, "replay": asked.replay, "source": asked.source, **asked.header}
    for name, value in said.items():
        if not _FIELD_NAME.fullmatch(name) or not value.isprintable():
            raise Unprocessable(f"header: {name!r:.80} or its value has characters that none may have")
    if asked.source and not _is_address(asked.source):
        raise Unprocessable(f"source: {asked.source!r:.80} is no IP address")
    return AskedRequest(
        method=asked.method,
        target=f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}",
        fields=tuple(asked.header.items()),
        source=asked.source,
        replay=asked.replay,
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _listener(door: ExplainedDoor) -> ListenerState:
    return ListenerState(
        address=door.address,
        port=door.port,
        speaks=door.speaks,
        outcome=door.outcome,
        certificate=door.certificate,
        candidates=tuple(map(_candidate, door.candidates)),
        notes=door.notes,
    )


def _candidate(found: RouteCandidate) -> CandidateState:
    return CandidateState(
        machine=found.machine,
        state=found.state,
        stands=found.stands,
        internal_port=found.internal_port,
        in_flight=found.in_flight,
        soft_limit=found.soft_limit,
        hard_limit=found.hard_limit or None,
        chosen=found.chosen,
    )


def published_ports(
    record: MachineRecord, addresses: tuple[str, ...], states: tuple[ListenState, ...]
) -> Iterator[PublishedPortState]:
    """Each port at each address, as the edge has it in `states`."""
    asked = (record.config.metadata or {}).get(PUBLISH, "")
    if not asked:
        return
    allowed = published_at(asked, addresses)
    known = {(state.address, state.port, state.udp): state for state in states}
    for service in record.config.services or ():
        for port in service.ports or ():
            for address in addresses if allowed == EVERYWHERE else (allowed or asked,):
                state = known.get((address, port.port or port.start_port or 0, service.protocol == "udp"))
                yield _shown(record, address, service, port, state if allowed else None, allowed)


def _shown(
    record: MachineRecord, address: str, service: Service, port: Port, state: ListenState | None, allowed: str
) -> PublishedPortState:
    refused = (state.refused if state else NOT_YET) if allowed else _NOWHERE
    if state and state.app != record.app and not _may_share(state, set(port.handlers or ())):
        refused = _TAKEN
    return PublishedPortState(
        address=address,
        port=port.port or port.start_port or 0,
        internal_port=service.internal_port or 0,
        protocol=service.protocol or "tcp",
        handlers=port.handlers or (),
        listening=not refused,
        refused=refused,
    )


def _may_share(state: ListenState, handlers: set[str]) -> bool:
    """TLS names the app before a byte is served, HTTP with each request."""
    if state.tls or ENDS_TLS & handlers:
        return state.tls and bool(ENDS_TLS & handlers)
    return state.http and bool(_HTTP & handlers)
