"""A machine before which edges stand: what its worker knows of it, and the program in it, a server that counts what
reaches it. A request's path says what the program does with it.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

from hawker.config import PUBLISH, Service
from hawker.config.effective import SERVICE_CHECK
from hawker.config.machine import Concurrency, MachineConfig, Port
from hawker.edge.writing import OURS
from hawker.feed import EVERYWHERE, MachineRoute, RouteHealth
from hawker.fleet.rows import Row, health_rows, machine_row, served_rows, service_rows
from hawker.ids import AppName, Digest, InstanceId, MachineId, NodeId, Version
from hawker.image.manifest import Resolved
from hawker.machine import State
from hawker.proof.edge_checks import EdgeLedger
from hawker.proof.flow_checks import FlowLedger
from hawker.record.machine import CheckResult, MachineRecord, Network
from hawker.sim.edge.wires import NO_EDGE, Wires

PORT = 8080
HOME = "mad"
"""The region of hosts of which nothing else is said."""
_IMAGE = Resolved(
    reference="hawker/hello", registry="", repository="hello", tag="", digest=Digest("sha256:" + "0" * 64), size_bytes=1
)
_UNDER_WAY_S = 0.001  # a datagram may be that the edge has sent before
_SET_BY_APPS = (b"fly-replay-src", b"fly-replay-failed")


@dataclass(slots=True, kw_only=True)
class PlayedMachine:
    """`address` is where its host reaches it. `public_port` is its app's. Limits as in a service's `concurrency`."""

    id: MachineId
    app: AppName
    node: NodeId
    address: str
    public_port: int
    network: int
    soft: int | None = None
    hard: int | None = None
    kind: str | None = None
    autostop: Literal["off", "stop", "suspend"] = "off"
    least: int = 0
    idle_s: float = 300.0
    publish: str = EVERYWHERE
    udp: bool = False
    state: State = State.STARTED
    number: int = 1  # of its instance
    version: int = 1
    starts: int = 0
    restarts: int = 0  # of its starts those after its program has ended by itself
    cordoned: bool = False
    healthy: bool = True
    closed: bool = False  # its edge has said that nobody comes in
    rested: bool = False  # nobody but its edge has stopped it
    connections: dict["AppConnection", None] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        return self.state is State.STARTED

    def route(self) -> MachineRoute:
        """As its worker tells its own edge."""
        return MachineRoute(
            id=self.id,
            app=self.app,
            state=self.state,
            version=self._version,
            instance=InstanceId(f"{self.id}-{self.number}") if self.up else None,
            hosts=(self.address,),
            services=(self._service,),
            health=RouteHealth.PASSING if self.healthy else RouteHealth.CRITICAL,
            cordoned=self.cordoned,
            publish=self.publish,
            idle_s=self.idle_s,
            network=self.network,
            rested=self.rested and self.state in (State.STOPPED, State.SUSPENDED),
        )

    def rows(self) -> Iterator[Row]:
        """As the catalog has it for other hosts."""
        record = MachineRecord(
            id=self.id,
            app=self.app,
            name="",
            region="",
            state=self.state,
            version=Version(self._version),
            config=MachineConfig(services=(self._service,), metadata={PUBLISH: self.publish}),
            image=_IMAGE,
            network=Network(private_ip="", network_id=self.network),
            cordoned=self.cordoned,
            created_at=0.0,
            updated_at=0.0,
        )
        check = CheckResult(f"{SERVICE_CHECK}00", "passing" if self.healthy else "critical", "", 0.0)
        yield machine_row(self.node, record)
        yield from service_rows(self.node, record)
        yield from served_rows(self.node, record)
        yield from health_rows(self.node, record, [check])

    @property
    def _version(self) -> str:
        return f"{self.version:026}"

    @property
    def _service(self) -> Service:
        return Service(
            protocol="udp" if self.udp else "tcp",
            internal_port=PORT,
            ports=(Port(port=self.public_port, handlers=None if self.udp else ("http",)),),
            autostop=self.autostop,
            min_machines_running=self.least,
            concurrency=Concurrency(type=self.kind, soft_limit=self.soft, hard_limit=self.hard),
        )

    def listen(self, wires: Wires, ledger: EdgeLedger) -> None:
        if self.udp:
            DatagramProgram(self, wires, ledger.flows)
        else:
            wires.listen(self.node, self.address, PORT, lambda: AppConnection(self, ledger))

    def end(self, wires: Wires, ledger: EdgeLedger) -> None:
        """Its instance is gone, with all of its connections."""
        wires.unlisten(self.address, PORT)
        wires.datagrams.unbind((self.address, PORT))
        for connection in list(self.connections):
            connection.cut()
        ledger.emptied(self.id)


class DatagramProgram:
    """Answers each datagram, which is FLOW/NUMBER, with the same."""

    def __init__(self, machine: PlayedMachine, wires: Wires, ledger: FlowLedger) -> None:
        self._machine = machine
        self._ledger = ledger
        self._net = wires.datagrams
        self._socket = wires.datagrams.bind(machine.node, NO_EDGE, machine.address, PORT)
        self._socket.watch(self._hear)
        self._closed_at: float | None = None  # when the first one came that was under way while it was closed

    def _hear(self) -> None:
        machine, now = self._machine, asyncio.get_running_loop().time()
        if not machine.closed:
            self._closed_at = None
        elif self._closed_at is None:
            self._closed_at = now
        closed = self._closed_at is not None and now > self._closed_at + _UNDER_WAY_S
        data, sender = self._socket.recvfrom(0)
        flow_id = data.decode().partition("/")[0]
        inside = self._net.connected_to((machine.address, PORT))
        self._ledger.reached(flow_id, machine.id, machine.app, inside, machine.hard, closed=closed)
        self._ledger.answers(flow_id, machine.id)
        self._socket.sendto(data, sender)


class AppConnection(asyncio.Protocol):
    """Reads one request after the other, and answers each when its time has come. A path is
    /REQUEST/MILLISECONDS/WORD[/TARGET]; the words: ok, pieces, break, machine and app (a replay to TARGET), loop (a
    replay without an end), upgrade (bytes both ways until the client has enough), guess (as ok; its client has named
    the app that has no address)."""

    def __init__(self, machine: PlayedMachine, ledger: EdgeLedger) -> None:
        self._machine = machine
        self._ledger = ledger
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._current = ""
        self._body_left = 0
        self._answer: Callable[[], None] | None = None
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._machine.connections[self] = None

    def data_received(self, data: bytes) -> None:
        if self._upgraded:
            return
        self._buffer += data
        if not self._current and b"\r\n\r\n" in self._buffer:
            self._begin()
        if self._current and self._answer is not None:
            taken = min(len(self._buffer), self._body_left)
            self._buffer, self._body_left = self._buffer[taken:], self._body_left - taken
            if not self._body_left:
                answer, self._answer = self._answer, None
                answer()

    def eof_received(self) -> bool:
        return not self._upgraded

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._machine.connections.pop(self, None)
        self._leave()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _begin(self) -> None:
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines[1:])]
        request_id, milliseconds, word, *target = lines[0].split()[1].decode().strip("/").split("/")
        machine, self._current = self._machine, request_id
        self._body_left = int(dict(fields).get(b"content-length", b"0"))
        self._ledger.reached(request_id, machine.id, machine.app, machine.hard, closed=machine.closed)
        self._judge(request_id, fields)
        replayed = any(name == b"fly-replay-src" for name, _ in fields)
        closes = (b"connection", b"close") in fields
        seconds = int(milliseconds) / 1000
        if replayed and word not in ("loop", "pieces"):
            word = "ok"
        say = partial(self._say, word, target, closes)
        self._answer = lambda: self._later(seconds, say)

    def _later(self, seconds: float, say: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, say)

    def _judge(self, request_id: str, fields: list[tuple[bytes, bytes]]) -> None:
        """Each field that the edge vouches for is there once, and is the edge's."""
        values: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            values.setdefault(name, []).append(value)
        request = self._ledger.requests[request_id]
        for name in OURS:
            found = values.get(name, [])
            lies = name == b"fly-client-ip" and found != [request.client.encode()]
            lies |= name in _SET_BY_APPS and bool(found) and not request.replays
            if lies or len(found) > 1 or b"forged" in b"".join(found):
                text = b", ".join(found).decode("latin-1")
                self._ledger.forged(self._machine.id, request_id, name.decode(), text)

    def _say(self, word: str, target: list[str], closes: bool) -> None:
        transport, request_id = self._transport, self._current
        if transport is None:
            return
        content = request_id.encode()
        extra = b"connection: close\r\n" if closes else b""
        match word:
            case "break":
                transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                transport.abort()
                return
            case "upgrade":
                self._upgraded = True
                transport.write(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello")
                return
            case "machine" | "app" | "loop":
                self._ledger.requests[request_id].replays += 1
                order = {"machine": "instance=%s", "app": "app=%s", "loop": "elsewhere=true"}[word]
                extra += b"fly-replay: %b\r\n" % (order % target[0] if "%" in order else order).encode()
            case _:
                pass
        if word == "pieces":
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(content), content) for _ in range(3))
            transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n%b\r\n%b0\r\n\r\n" % (extra, chunks))
        else:
            transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n%b" % (len(content), extra, content))
        self._leave()
        if closes:
            transport.close()
        elif self._buffer:
            self.data_received(b"")

    def _leave(self) -> None:
        if self._current:
            self._ledger.left(self._current, self._machine.id)
            self._current = ""
