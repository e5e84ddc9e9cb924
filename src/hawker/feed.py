"""What the worker and the edge of one host say to each other over `edge.sock`: the routes that the worker feeds, the
edge's requests (wake, rest), the worker's request to close a machine. Values and their frames; nothing here does I/O.

A frame is four bytes of length and MessagePack. Both ends are of one host; each may be the older of two versions, so
unknown fields are passed over.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import TypeAlias
from zlib import crc32

import msgspec

from hawker.config import Service
from hawker.config.machine import Port
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from hawker.names import API_PORT, is_private_address, network_of_address
from hawker.route_question import AskRoute, RouteExplained
from hawker.version import VERSION

EVERYWHERE = "*"
"""The value of `PUBLISH` in a machine's metadata that publishes it at all addresses that the edge has."""
POSTGRES = "pg_tls"
"""The handler that has the edge end TLS as clients of PostgreSQL begin it."""
ENDS_TLS = frozenset({"tls", POSTGRES})
"""Handlers that have the edge end TLS."""
CERTIFICATE_KEY = "certificates.key"
"""The file in the edge's folder with the 32 bytes that open the certificates of the feed. Only the node's user can read
it."""
WORKER_SOCKET, API_SOCKET = "edge.sock", "api.sock"
"""The sockets in the edge's folder: at the first the worker hears the edge, at the second the node takes calls of its
API that come to the edge."""
API_APP = AppName("_api")
"""The app name under which the edge leads requests to the node's API; no real app can have it."""
NODE_IDENTITY = "node.pem"
"""The file in the edge's folder with which it speaks TLS with edges of other hosts: its key and certificate, and whom
it trusts. Only the node's user can read it."""
HOP_OFFSET = 10
"""The difference between two ports of a node: the edge answers edges of other nodes at the port of the node's gossip
and so many more. Of several edge processes each next one has the next port."""
PROCESSES = "processes"
"""The file in the edge's folder that says in digits how many edge processes serve; where it is not there, one does."""
RESPONSE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the times from the head of a request to the head of its answer, in seconds; a last part is for all that
take longer."""
MAX_FRAME_BYTES = 64 << 20
PART_MACHINES, _PART_CERTIFICATES = 200, 20
"""The most machines, and the most certificates, that one message tells: some 64 KiB, and less than 5 ms."""
_LENGTH = struct.Struct(">I")


class RouteHealth(StrEnum):
    PASSING = "passing"
    UNASKED = "unasked"
    CRITICAL = "critical"


def process_of(app: AppName, processes: int) -> int:
    """The number of the host's edge process that has the gates of this app's machines, from 0. One process has all
    gates of an app, because rest and wake are decided for an app."""
    return crc32(app.encode()) % processes


class GatePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place at which the edge of a node answers the edges of others."""

    node: NodeId
    host: str
    """An address of the node that other nodes reach."""
    port: int
    """TCP, 1 to 65535; 0: it is another edge process of the same host, and `host` the path of its socket."""

    @property
    def is_beside(self) -> bool:
        """Whether the place is another edge process of the same host."""
        return not self.port


class MachineRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the edge knows of one machine. `hosts` are where it is reached, in the order to try: addresses, or of the
    node's API the path of its socket, from the edge's folder on. `health` is the worst of what its services' checks and
    those of kind readiness say. `publish`: see `config.PUBLISH`; empty is not published. `idle_s` is how long it does
    nothing before it may rest. Times are seconds.

    `network` is the number of its private network, which no other organization has, nor another network of its own; 0
    where that is not known. `org` is the organization of its app, empty where that is not known. `rested`: it sleeps
    because nobody needed it, and nobody has stopped it since.

    `gate` is null for a machine of this host. Else it is of another one, whose edge alone lets anybody in: what is said
    here of its state is a hint.

    With a `region` it is no machine: it stands for all that the app has in that other region, and `gate` is that of a
    host there which has some, and chooses.

    Of 100,000 of them the collector would make pauses; none is in a circle."""

    id: MachineId
    app: AppName
    state: State
    version: str
    """The version of the machine's config, a ULID."""
    instance: InstanceId | None = None
    hosts: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    health: RouteHealth = RouteHealth.PASSING
    cordoned: bool = False
    """No new request is led to it; those within end as usual."""
    publish: str = ""
    autostart: bool = True
    """A request may start it."""
    idle_s: float = 300.0
    started_at: float = 0.0
    """The time of the machine's last start in Unix seconds; 0 before the first."""
    created_at: float = 0.0
    """The time of the machine's creation in Unix seconds; of equal machines the older one is woken first."""
    gate: GatePlace | None = None
    network: int = 0
    org: str = ""
    rested: bool = False
    region: str = ""
    away_ms: int = 0
    """The distance to that region in milliseconds: a round trip, in steps that double; 0 where it was not measured."""


def api_route(instance: InstanceId) -> MachineRoute:
    """The API of a daemon, which is another `instance` in each of its lives: it stands like a machine that never
    rests."""
    https = Port(port=443, handlers=("tls", "http"))
    service = Service(
        internal_port=API_PORT,
        ports=(Port(port=80, handlers=("http",), force_https=True), https),
        autostart=False,
        autostop=False,
    )
    return MachineRoute(
        id=MachineId(API_APP),
        app=API_APP,
        state=State.STARTED,
        version=VERSION,
        instance=instance,
        hosts=(f"./{API_SOCKET}",),
        services=(service,),
        autostart=False,
    )


class SealedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate for a host name of an app, with its key, as it is stored: sealed. Who has the file that
    `CERTIFICATE_KEY` names can open it."""

    hostname: str
    """The host name in lower case; its first label may be `*`."""
    app: AppName
    sealed: bytes
    """The chain and its private key, under the cluster's key."""
    not_after: float = 0.0
    """The time at which the certificate expires, in Unix seconds; 0 where that is not known. Then another one for the
    name is shown, if any."""


class AppAddress(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An address at which an app is reached. `shared`: others have it, too, so what names the app in a connection
    decides. An address that is not shared is the app's alone: the ports of no other app are served there."""

    app: AppName
    ip: str
    """An IPv4 or IPv6 address in its usual form."""
    shared: bool = False

    @property
    def is_private(self) -> bool:
        """Whether the address is in a private network, and for machines of that network alone."""
        return is_private_address(self.ip)

    @property
    def network_id(self) -> int:
        """The number of the private network that a private address is in."""
        return network_of_address(self.ip)


HTTP_01, TLS_ALPN_01, DNS_01 = "http-01", "tls-alpn-01", "dns-01"
"""The ways in which a certificate authority asks whether a host name is ours."""


class ShownChallenge(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a certificate authority asks for: by HTTP at `/.well-known/acme-challenge/TOKEN` of a host name
    (RFC 8555, 8.3), or in a certificate that is shown to a client that speaks nothing but `acme-tls/1` (RFC 8737);
    `answer` is the key authorization. `app` ordered the certificate: at an address that another app has alone nothing
    is answered for it."""

    hostname: str
    """The host name for which a certificate was ordered, in lower case."""
    token: str
    """The last part of the path at which the answer is asked for."""
    answer: str
    app: AppName = AppName("")
    kind: str = HTTP_01
    """The kind of the challenge: `http-01`, `tls-alpn-01` or `dns-01`."""


LEAVE_S = 600.0
"""The seconds for which visits may stay in machines when the next edge process begins, unless the settings say
otherwise."""


class AllMachines(msgspec.Struct, frozen=True, kw_only=True, tag="whole"):
    """All machines with services, all certificates, and the addresses of apps; what is not among them is gone.
    `addresses` are those of the host that ports may be published at; `region` goes into headers. `gate` is where this
    edge answers others, with what `NODE_IDENTITY` has; null in no cluster. `balancers` are networks whose connections
    begin with a PROXY head. `drain_s`: so many seconds may visits stay in machines when the next edge process begins.
    `api_hostname` is the host name that leads to the node's API, and to nothing else; empty: none does. `domain` is the
    platform's own: the name APP.DOMAIN is that app's alone; empty: there is none. With `more` this message is the
    beginning: `MoreMachines` follow, to processes that hear them."""

    machines: tuple[MachineRoute, ...]
    addresses: tuple[str, ...] = ()
    region: str = "local"
    certificates: tuple[SealedCertificate, ...] = ()
    app_addresses: tuple[AppAddress, ...] = ()
    gate: GatePlace | None = None
    challenges: tuple[ShownChallenge, ...] = ()
    balancers: tuple[str, ...] = ()
    drain_s: float = LEAVE_S
    api_hostname: str = ""
    domain: str = ""
    more: bool = False


class MoreMachines(msgspec.Struct, frozen=True, kw_only=True, tag="more"):
    """More machines and certificates, which belong to the `AllMachines` before them. So many are told at once that
    neither end stands still for long; the last of them is without `more`."""

    machines: tuple[MachineRoute, ...] = ()
    certificates: tuple[SealedCertificate, ...] = ()
    more: bool = False


def in_parts(
    beginning: AllMachines, machines: Iterable[MachineRoute], certificates: Iterable[SealedCertificate]
) -> Iterator[AllMachines | MoreMachines]:
    """`beginning` and all of these, each part made when it is asked for."""
    yield msgspec.structs.replace(beginning, machines=(), certificates=(), more=True)
    there = iter(machines)
    while part := tuple(islice(there, PART_MACHINES)):
        yield MoreMachines(machines=part, more=True)
    sealed = iter(certificates)
    while found := tuple(islice(sealed, _PART_CERTIFICATES)):
        yield MoreMachines(certificates=found, more=True)
    yield MoreMachines()


class MachineChanged(msgspec.Struct, frozen=True, kw_only=True, tag="changed"):
    machine: MachineRoute


class MachineGone(msgspec.Struct, frozen=True, kw_only=True, tag="gone"):
    id: MachineId


class CloseMachine(msgspec.Struct, frozen=True, kw_only=True, tag="close"):
    """Let nobody into this instance any more, and answer `MachineClosed` when nobody is in there, or after `wait_s`."""

    call: int
    """The number that the answer repeats, 1 or more."""
    id: MachineId
    instance: InstanceId
    wait_s: float


class EdgeAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The worker's answer to a `WakeMachine` or `RestMachine`. `refused` says why it was not accepted; empty when it
    was."""

    call: int
    """The number of the `WakeMachine` or `RestMachine` that is answered."""
    refused: str = ""


class AskReport(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """The worker's question for an `EdgeReport`, with the figures of `apps` if they are asked for."""

    call: int
    """The number that the answer repeats, 1 or more."""
    apps: bool = False


class WakeMachine(msgspec.Struct, frozen=True, kw_only=True, tag="wake"):
    """Start this machine: somebody waits for it; or, with `rested`, it is to run again, unless somebody has stopped it
    since it was put to rest."""

    call: int
    """The number that the answer repeats, 1 or more."""
    id: MachineId
    rested: bool = False


class RestMachine(msgspec.Struct, frozen=True, kw_only=True, tag="rest"):
    """Stop or suspend this instance: nobody is in there, and nobody will be let in until this is answered."""

    call: int
    """The number that the answer repeats, 1 or more."""
    id: MachineId
    instance: InstanceId
    suspend: bool
    """Suspend it, where that can be done; else it is stopped."""


class MachineClosed(msgspec.Struct, frozen=True, kw_only=True, tag="closed"):
    """The edge's answer to a `CloseMachine`; `left` visits are in the machine still."""

    call: int
    """The number of the `CloseMachine` that is answered."""
    left: int = 0


class ListenState(msgspec.Struct, frozen=True, kw_only=True):
    """One address and port of the host; `refused` says why nothing listens there, empty when it does. `app` has it
    where nothing in a connection names one. With `tls` others that have the edge end TLS may share it, else with `http`
    others that speak HTTP. With `udp` it is for datagrams. `owned`: the app has the address alone."""

    address: str
    """An IP address of this host, `0.0.0.0` or `::` for all."""
    port: int
    """The port, 1 to 65535."""
    app: AppName
    http: bool = False
    tls: bool = False
    udp: bool = False
    owned: bool = False
    refused: str = ""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """The times that something took: how many by the bounds of `RESPONSE_S`, and the sum of all in seconds."""

    buckets: tuple[int, ...] = ()
    """The counts of times, one for each bound of `RESPONSE_S` and one for all above; empty: none took any time yet."""
    seconds: float = 0.0
    """The sum of all times in seconds, 0 or more."""


class AppFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of an app since the edge began: answers by status, how many took how long (by `RESPONSE_S`), all
    seconds together; raw connections that came, and that have ended; bytes of bodies and of what is no HTTP.

    `handshakes` by version of TLS, and those that failed once it was known whom they were for. `wakes`: from the word
    that starts a machine to its being open. `events` and `verdicts` by name, see docs/metrics.md; `held` requests wait
    for a machine now."""

    app: AppName
    statuses: dict[str, int] = {}
    """Answers by HTTP status in digits."""
    buckets: tuple[int, ...] = ()
    """The counts of answers by their time, one for each bound of `RESPONSE_S` and one for all above; empty before the
    first answer."""
    seconds: float = 0.0
    """The sum of the times of all answers in seconds, 0 or more."""
    connects: int = 0
    """Raw connections that came."""
    disconnects: int = 0
    """Raw connections that have ended."""
    bytes_in: int = 0
    """The bytes that clients sent."""
    bytes_out: int = 0
    """The bytes that clients were sent."""
    handshakes: dict[str, Times] = {}
    tls_errors: int = 0
    """Handshakes that failed once it was known whom they were for."""
    wakes: Times = Times()
    events: dict[str, int] = {}
    verdicts: dict[str, int] = {}
    held: int = 0


class MachineFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a machine for clients of this edge: answers by status, the time from a request to the head of its
    answer, the time that it took to connect (of a machine of this host), and raw connections."""

    app: AppName
    machine: MachineId
    statuses: dict[str, int] = {}
    """Answers by HTTP status in digits."""
    answers: Times = Times()
    dials: Times = Times()
    connects: int = 0
    """Raw connections that were opened to it."""
    disconnects: int = 0
    """Raw connections to it that have ended."""


class EdgeReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """The edge's answer to an `AskReport`: how it is now. `counters` count since it began; `held` requests wait for a
    machine; `in_flight` has the number of visits by machine, without those that have none. Figures of `apps` and
    `machines` are there only where they were asked for."""

    call: int
    """The number of the `AskReport` that is answered."""
    process: int = 0
    """The number of the host's edge process that reports, 0 or more."""
    bound: tuple[ListenState, ...] = ()
    counters: dict[str, int] = {}
    held: int = 0
    in_flight: dict[str, int] = {}
    apps: tuple[AppFigure, ...] = ()
    machines: tuple[MachineFigure, ...] = ()
    hears_parts: bool = False
    """The edge process hears `MoreMachines`. It says so in its first report, with `call` 0, which older workers pass
    over."""


class EdgeLogLine(msgspec.Struct, frozen=True, kw_only=True, tag="line"):
    """A line for an app's log: what the edge could not do for it."""

    app: AppName
    machine: MachineId | None = None
    code: str
    """The code of what went wrong, as docs/edge.md lists them."""
    text: str
    """The text of the line in words, for the app's owner."""


ToEdge: TypeAlias = (
    AllMachines | MoreMachines | MachineChanged | MachineGone | CloseMachine | EdgeAnswer | AskReport | AskRoute
)
ToWorker: TypeAlias = WakeMachine | RestMachine | MachineClosed | EdgeReport | RouteExplained | EdgeLogLine


def frame(message: ToEdge | ToWorker) -> bytes:
    data = msgspec.msgpack.encode(message)
    assert len(data) <= MAX_FRAME_BYTES, "a frame has its bound"
    return _LENGTH.pack(len(data)) + data


def edge_version(processes: int) -> str:
    """The version that a warden says of itself: it begins anew where another version is wanted."""
    return VERSION if processes == 1 else f"{VERSION} with {processes} processes"


class _Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        """The frames that the bytes complete. Raises `ValueError` when one is longer than a frame may be."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes, {MAX_FRAME_BYTES} at most")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            yield bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]


class EdgeInbox:
    """The messages that come to the edge. `read` raises `ValueError` for bytes that are no message."""

    def __init__(self) -> None:
        self._frames = _Frames()
        self._decoder: msgspec.msgpack.Decoder[ToEdge] = msgspec.msgpack.Decoder(ToEdge)

    def read(self, data: bytes) -> list[ToEdge]:
        return [self._decoder.decode(each) for each in self._frames.cut(data)]


class WorkerInbox:
    """The messages that come to the worker. `read` raises `ValueError` for bytes that are no message."""

    def __init__(self) -> None:
        self._frames = _Frames()
        self._decoder: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)

    def read(self, data: bytes) -> list[ToWorker]:
        return [self._decoder.decode(each) for each in self._frames.cut(data)]
