"""What the worker asks the edge about a request that nobody sends, and what the edge says to it. Each end may be the
older of two versions, so unknown fields are passed over.
"""

import msgspec

from hawker.ids import AppName, MachineId


class AskedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request that a client would send, and the client. `method`, `target`, `fields` and `replay` mean something
    where the port speaks HTTP."""

    method: str = ""
    """The method of HTTP, as the client writes it; empty: GET."""
    target: str = "/"
    """The path, with its query."""
    fields: tuple[tuple[str, str], ...] = ()
    """The head's, in order, each a name and a value without line ends."""
    source: str = ""
    """The IP address of the client; empty: anybody."""
    replay: str = ""
    """The field `fly-replay` of the answer of the machine that gets the request; empty: it answers by itself."""


class AskRoute(msgspec.Struct, frozen=True, kw_only=True, tag="explain"):
    """The worker's question where a request of `app` for this host and port would go, or with `udp` a datagram. The
    edge answers with a `RouteExplained`."""

    call: int
    """The number that the answer repeats, 1 or more."""
    app: AppName
    host: str
    """A host name, as the request says it."""
    port: int
    """The published port, 1 to 65535."""
    tls: bool
    """The client speaks TLS."""
    udp: bool = False
    request: AskedRequest = AskedRequest()


class RouteCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that a request could go to. `stands` says in words how it is for requests that want in; `hard_limit` is
    0 where there is none. `chosen`: the request would go to this machine; a lot decides between equal ones."""

    machine: MachineId
    state: str
    """The state of the machine, in the words of the API."""
    stands: str
    internal_port: int
    """The machine's own port that the request would go to."""
    in_flight: int
    """Requests that are in the machine now, from this edge."""
    soft_limit: int
    """The number of requests that the machine likes to have at most; above, other machines are preferred."""
    hard_limit: int = 0
    chosen: bool = False


class ExplainedDoor(msgspec.Struct, frozen=True, kw_only=True):
    """One address where the port is published. `speaks` is https, tls, http, tcp or udp; `certificate` the name of the
    certificate that is shown, or "self-signed"; `outcome` what becomes of the request, in words; `notes` what the
    request says that changes it, a sentence each."""

    address: str
    """The IP address of the host."""
    port: int
    """TCP, 1 to 65535."""
    speaks: str
    outcome: str
    certificate: str = ""
    candidates: tuple[RouteCandidate, ...] = ()
    notes: tuple[str, ...] = ()


class RouteExplained(msgspec.Struct, frozen=True, kw_only=True, tag="explained"):
    """The edge's answer to an `AskRoute`; no doors where nothing is published at the port."""

    call: int
    """The number of the `AskRoute` that is answered."""
    doors: tuple[ExplainedDoor, ...] = ()
