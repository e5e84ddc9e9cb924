"""Answers about published ports: what configs ask for, beside what the edge of the host says."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.published_port import (
    EXPLAIN_ROUTE,
    LIST_PUBLISHED_PORTS,
    CandidateState,
    ExplainQuery,
    ListenerState,
    PublishedPortState,
    RouteExplanation,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.config import Service
from hawker.config.machine import Port
from hawker.errors import Unprocessable
from hawker.feed import ENDS_TLS, EVERYWHERE, NOT_YET, PUBLISH, ExplainedDoor, ListenState, RouteCandidate
from hawker.record.machine import MachineRecord
from hawker.store.contract import Store
from hawker.value_object import ValueObject
from hawker.worker.apps import AppTable
from hawker.worker.edge_door import published_at
from hawker.worker.edge_line import EdgeLine
from hawker.worker.handlers.target import MachineFinder

_HTTP = frozenset({"http", "edge_http"})
_SCHEMES = frozenset({"http", "https", "tcp", "tls"})
_PORTS = {"http": 80, "https": 443}
_MAX_HOST = 253
_NOWHERE = "machines of this node may not publish there: see --edge-address"
_TAKEN = "another app of this host has published it before"


class PublishedPortHandlers:
    """`addresses` are where machines may publish."""

    def __init__(
        self, store: Store, apps: AppTable, machines: MachineFinder, edge: EdgeLine, addresses: tuple[str, ...]
    ) -> None:
        self._store = store
        self._apps = apps
        self._machines = machines
        self._edge = edge
        self._addresses = addresses

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_PUBLISHED_PORTS, self.list)
        handlers.on(EXPLAIN_ROUTE, self.explain)

    async def list(self, call: Call[MachineParams, NoQuery, None]) -> tuple[PublishedPortState, ...]:
        record = self._machines.find(call.params)
        states = (await self._edge.report()).bound if self._edge.is_up else ()
        return tuple(published_ports(record, self._addresses, states))

    async def explain(self, call: Call[AppParams, ExplainQuery, None]) -> RouteExplanation:
        app, asked = self._apps.get(self._store, call.params.app_name), place_of(call.query.url)
        doors = await self._edge.explain(app.name, asked.host, asked.port, tls=asked.tls)
        return RouteExplanation(url=call.query.url, app=app.name, listeners=tuple(map(_listener, doors)))


class AskedPlace(ValueObject, frozen=True):
    host: str
    port: int
    tls: bool


def place_of(url: str) -> AskedPlace:
    """Where a client of the URL goes. Raises `Unprocessable`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Unprocessable(f"url: {url!r:.200} is no URL: {error}") from error
    if parts.scheme not in _SCHEMES or not host or len(host) > _MAX_HOST:
        raise Unprocessable(f"url: {url!r:.200} must be http://, https://, tcp:// or tls:// with a host")
    port = port or _PORTS.get(parts.scheme)
    if not port:
        raise Unprocessable(f"url: {url!r:.200} needs a port")
    return AskedPlace(host.rstrip("."), port, parts.scheme in ("https", "tls"))


def _listener(door: ExplainedDoor) -> ListenerState:
    return ListenerState(
        address=door.address,
        port=door.port,
        speaks=door.speaks,
        outcome=door.outcome,
        certificate=door.certificate,
        candidates=tuple(map(_candidate, door.candidates)),
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
    known = {(state.address, state.port): state for state in states}
    for service in record.config.services or ():
        for port in service.ports or ():
            for address in addresses if allowed == EVERYWHERE else (allowed or asked,):
                state = known.get((address, port.port or port.start_port or 0))
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
        handlers=port.handlers or (),
        listening=not refused,
        refused=refused,
    )


def _may_share(state: ListenState, handlers: set[str]) -> bool:
    """TLS names the app before a byte is served, HTTP with each request."""
    if state.tls or ENDS_TLS & handlers:
        return state.tls and bool(ENDS_TLS & handlers)
    return state.http and bool(_HTTP & handlers)
