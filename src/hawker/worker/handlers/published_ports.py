"""Answers about the ports that a machine publishes: what its config asks for, beside what the edge of the host says."""

from collections.abc import Iterator

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.published_port import LIST_PUBLISHED_PORTS, PublishedPortState
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.config import Service
from hawker.config.machine import Port
from hawker.feed import EVERYWHERE, NOT_YET, PUBLISH, TLS, UNSERVED, ListenState
from hawker.record.machine import MachineRecord
from hawker.worker.edge_door import published_at
from hawker.worker.edge_line import EdgeLine
from hawker.worker.handlers.target import MachineFinder

_HTTP = frozenset({"http", "edge_http"})
_NOWHERE = "machines of this node may not publish there: see --edge-address"
_TAKEN = "another app of this host has published it before"


class PublishedPortHandlers:
    """`addresses` are where machines may publish."""

    def __init__(self, machines: MachineFinder, edge: EdgeLine, addresses: tuple[str, ...]) -> None:
        self._machines = machines
        self._edge = edge
        self._addresses = addresses

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_PUBLISHED_PORTS, self.list)

    async def list(self, call: Call[MachineParams, NoQuery, None]) -> tuple[PublishedPortState, ...]:
        record = self._machines.find(call.params)
        states = (await self._edge.report()).bound if self._edge.is_up else ()
        return tuple(published_ports(record, self._addresses, states))


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
    if not UNSERVED.isdisjoint(port.handlers or ()):
        refused = f"the handler {', '.join(sorted(UNSERVED & set(port.handlers or ())))} is not served yet"
    elif state and state.app != record.app and not _may_share(state, set(port.handlers or ())):
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
    if state.tls or TLS in handlers:
        return state.tls and TLS in handlers
    return state.http and bool(_HTTP & handlers)
