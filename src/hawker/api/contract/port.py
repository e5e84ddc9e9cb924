"""Ports of machines: those of the host that a machine publishes, and a connection to any of them through the API, TCP
over a WebSocket, for who cannot reach its network.

The client sends `PortRequest`; the node answers `PortOpened` once the machine took the connection. Then either end
sends any `PortData`, `PortTaken` for what it has passed on, and `PortEnd` when it has no more: the other direction goes
on. An end that goes without `PortEnd` was cut off, which is a reset for whoever is at the other end.
"""

from typing import Annotated, Any, TypeAlias, cast

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.route import NoParams, NoQuery, Socket, Tag, Unary
from hawker.errors import NotFound, OverShare, Unavailable, Unprocessable, WrongState
from hawker.permission import Action


class PortRequest(Request, frozen=True, kw_only=True):
    """`port` is the machine's own, where a program in it listens."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PortOpened(Answer, frozen=True, kw_only=True, tag_field="type", tag="opened"):
    """`address` is the machine's, at which the port took the connection."""

    address: str


class PortData(Request, frozen=True, kw_only=True, tag_field="type", tag="data"):
    """At most 64 KiB where Hawker sends it."""

    data: bytes
    """Base64 of bytes for the machine's port, as they came."""


class PortEnd(Request, frozen=True, kw_only=True, tag_field="type", tag="end"):
    """Nothing more comes from this end."""


class PortTaken(Request, frozen=True, kw_only=True, tag_field="type", tag="taken"):
    """So many bytes of data were passed on here. An end has at most 256 KiB under way that are not taken."""

    count: Annotated[int, msgspec.Meta(ge=0)]


FromClient: TypeAlias = PortData | PortEnd | PortTaken
FromPort: TypeAlias = PortOpened | PortData | PortEnd | PortTaken

MACHINE_PORT: Socket[MachineParams, NoQuery, PortRequest, FromPort, FromClient] = Socket(
    name="machine_port",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/port",
    params=MachineParams,
    body=PortRequest,
    response=cast(Any, FromPort),  # a union is no `type[...]` to mypy
    tag=Tag.MACHINES,
    summary="Connect to a TCP port of a machine",
    errors=(NotFound, WrongState, OverShare, Unavailable),
    action=Action.CONTROL,
    up=cast(Any, FromClient),
)

MACHINE_PORT_ROUTES = (MACHINE_PORT,)


NOT_YET = "the edge does not listen there yet"
"""Why a published port is refused, where that may change by itself."""


class PublishedPortState(Answer, frozen=True, kw_only=True):
    """One port of the host, of `protocol` tcp or udp. `listening` says that what comes there reaches this machine;
    `refused` says why it does not, or not yet."""

    address: str
    """The address of the host where the port is."""
    port: int
    """The port at the host, 1 to 65535."""
    internal_port: int
    """The port in the machine, 1 to 65535."""
    protocol: str = "tcp"
    handlers: tuple[str, ...] = ()
    """The handlers of the port in the config, such as `tls` and `http`; none for plain connections."""
    listening: bool
    refused: str = ""


LIST_PUBLISHED_PORTS = Unary(
    name="list_published_ports",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/ports",
    params=MachineParams,
    response=tuple[PublishedPortState, ...],
    tag=Tag.MACHINES,
    summary="List the ports of the host that a machine publishes",
    errors=(NotFound, Unavailable),
)


class CandidateState(Answer, frozen=True, kw_only=True):
    """A machine that a request could go to: `stands` says in words how it is for those who want in. `hard_limit` is
    absent where there is none. `chosen`: it is the one, equal ones by lot."""

    machine: str
    """The id of the machine."""
    state: str
    """The machine's state, as the API has it: `started`, `stopped` and so on."""
    stands: str
    internal_port: int
    """The port in the machine, 1 to 65535."""
    in_flight: int
    """How many connections or requests this edge has in the machine now, 0 or more."""
    soft_limit: int
    """How many connections or requests the machine may have before the edge prefers others."""
    hard_limit: int | None = None
    chosen: bool


class ListenerState(Answer, frozen=True, kw_only=True):
    """One address of the host where the port is published. `speaks` is https, tls, http, tcp or udp; `certificate` the
    name of the one that is shown, or "self-signed"; `outcome` what becomes of the request; `notes` what it says that
    changes this, a sentence each."""

    address: str
    """The address of the host where the port is."""
    port: int
    """The port at the host, 1 to 65535."""
    speaks: str
    outcome: str
    certificate: str = ""
    candidates: tuple[CandidateState, ...] = ()
    notes: tuple[str, ...] = ()


class RouteExplanation(Answer, frozen=True, kw_only=True):
    """`listeners` is empty where no app of the host publishes the port. The edge that says it is that of `node`, in
    `region`, which `fly-force-region` and replays are compared with; both empty from a node of an older version."""

    url: str
    """The URL that was asked for."""
    app: str
    """The name of the app that was asked for."""
    listeners: tuple[ListenerState, ...]
    node: str = ""
    region: str = ""


class ExplainQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`url` has a scheme (http, https, tcp, tls, udp), a host, and a port where the scheme has none of its own. Its
    path, `method`, `header` and `replay` count where the port speaks HTTP."""

    url: str = ""
    method: str = ""
    """The method of the request, as the client writes it; empty: GET."""
    header: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields of the request by name, such as `header.fly-prefer-region=ams,iad`."""
    source: str = ""
    """The IP address that the request comes from; empty: from anywhere."""
    replay: str = ""
    """`fly-replay` as the machine that gets the request would answer it: says where it goes then; empty: it does
    not."""


EXPLAIN_ROUTE = Unary(
    name="explain_route",
    method="GET",
    path="/hawker/v1/apps/{app_name}/route",
    params=AppParams,
    query=ExplainQuery,
    response=RouteExplanation,
    tag=Tag.APPS,
    summary="Say where a request for an app would go, and why, without sending it",
    errors=(NotFound, Unavailable, Unprocessable),
)


class EdgeAddress(Answer, frozen=True, kw_only=True):
    """An address that `app` has alone. `up` says that the edge of the asked node's host listens there, so that routers
    may send to it what is for the address; `why` says why not, empty when it does."""

    ip: str
    """The address, IPv4 or IPv6."""
    app: str
    up: bool
    why: str = ""


LIST_EDGE_ADDRESSES = Unary(
    name="list_edge_addresses",
    method="GET",
    path="/hawker/v1/edge/addresses",
    params=NoParams,
    response=tuple[EdgeAddress, ...],
    tag=Tag.NODE,
    summary="List the addresses that apps have alone, and whether the host of the node serves them",
    errors=(WrongState, Unavailable),
    action=Action.METRICS,
)

PUBLISHED_PORT_ROUTES = (LIST_PUBLISHED_PORTS, EXPLAIN_ROUTE, LIST_EDGE_ADDRESSES)
