"""An edge process in the test's own event loop: a warden and a worker that the test plays, machines that are servers on
loopback, and clients that say their bytes as they are.
"""

import asyncio
import itertools
import re
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from hawker.auth.node_certificate import identity_of
from hawker.clock import SystemClock
from hawker.config import Service
from hawker.config.machine import Concurrency, HttpOptions, Port
from hawker.edge.http2_connection import Http2Connection
from hawker.edge.http_connection import HttpConnection
from hawker.edge.process import Edge, EdgeParts
from hawker.edge.shard import EdgeShard
from hawker.edge.warden import GivenDoor, Sockets, WantedDoors
from hawker.feed import (
    NODE_IDENTITY,
    AllMachines,
    EdgeAnswer,
    EdgeLogLine,
    EdgeReport,
    GatePlace,
    MachineChanged,
    MachineRoute,
    RestMachine,
    ToEdge,
    ToWorker,
    WakeMachine,
    WorkerInbox,
    frame,
)
from hawker.host.own_user import make_folder
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from tests.ports import free_port
from tests.waiting import eventually

HOST = "127.0.0.1"
KEY = b"k" * 32
"""Of the cluster."""
_numbers = itertools.count(1)
_LAST_CHUNK = re.compile(rb"(?:^|\n)0\r\n(?:[^\r\n]+\r\n)*\r\n$")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def route(
    port: int,
    internal_port: int,
    *,
    app: str = "shop",
    handlers: tuple[str, ...] = (),
    state: State = State.STARTED,
    soft: int | None = None,
    hard: int | None = None,
    kind: str | None = None,
    options: HttpOptions | None = None,
    autostart: bool = True,
    machine_id: str | None = None,
    autostop: bool = False,
    least: int | None = None,
    idle_s: float = 300.0,
    network: int = 7,
    publish: str = "*",
) -> MachineRoute:
    """A machine with one service, published at all addresses."""
    number = next(_numbers)
    service = Service(
        protocol="tcp",
        internal_port=internal_port,
        ports=(Port(port=port, handlers=handlers or None, http_options=options),),
        autostop=autostop,
        min_machines_running=least,
        concurrency=Concurrency(type=kind, soft_limit=soft, hard_limit=hard),
    )
    return MachineRoute(
        id=MachineId(machine_id or f"{number:014x}"),
        app=AppName(app),
        state=state,
        version=f"{number:026}",
        instance=InstanceId(f"i{number}") if state is State.STARTED else None,
        hosts=(HOST,),
        services=(service,),
        publish=publish,
        autostart=autostart,
        idle_s=idle_s,
        created_at=float(number),
        network=network,
    )


class PlayedWorker:
    """Answers at `edge.sock`. `on_wake` and `on_rest` say what becomes of those; without them they are
    refused."""

    def __init__(self) -> None:
        self.heard: list[ToWorker] = []
        self.introduced = 0  # how many processes have said what they hear
        self.machines: dict[MachineId, MachineRoute] = {}
        self.gate: GatePlace | None = None
        self.balancers: tuple[str, ...] = ()
        self.api_hostname = self.domain = ""
        self.on_wake: Callable[[MachineRoute], MachineRoute | str] = lambda machine: "nobody wakes here"
        self.on_rest: Callable[[MachineRoute], MachineRoute | str] = lambda machine: "nobody rests here"
        self.away = False
        self._writers: set[asyncio.StreamWriter] = set()

    def hang_up(self) -> None:
        """Its process is killed; there is no other one while it is `away`."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            writer.close()
            return
        self._writers.add(writer)
        writer.write(frame(self.whole()))
        inbox = WorkerInbox()
        with suppress(asyncio.CancelledError):
            while data := await reader.read(65_536):
                for message in inbox.read(data):
                    self._hear(message)
        self._writers.discard(writer)

    def whole(self) -> AllMachines:
        return AllMachines(
            machines=tuple(self.machines.values()),
            addresses=(HOST,),
            region="ams",
            gate=self.gate,
            balancers=self.balancers,
            api_hostname=self.api_hostname,
            domain=self.domain,
        )

    def say(self, message: ToEdge) -> None:
        for writer in self._writers:
            writer.write(frame(message))

    def put(self, machine: MachineRoute) -> None:
        self.machines[machine.id] = machine
        self.say(MachineChanged(machine=machine))

    @property
    def lines(self) -> list[EdgeLogLine]:
        return [message for message in self.heard if isinstance(message, EdgeLogLine)]

    @property
    def wakes(self) -> list[MachineId]:
        return [message.id for message in self.heard if isinstance(message, WakeMachine)]

    def _hear(self, message: ToWorker) -> None:
        if isinstance(message, EdgeReport) and message.hears_parts:
            self.introduced += 1
            return
        self.heard.append(message)
        if isinstance(message, WakeMachine):
            self._wake(message)
        elif isinstance(message, RestMachine):
            answer = self.on_rest(self.machines[message.id])
            self.say(EdgeAnswer(call=message.call, refused=answer if isinstance(answer, str) else ""))
            if not isinstance(answer, str):
                self.put(answer)

    def _wake(self, message: WakeMachine) -> None:
        answer = self.on_wake(self.machines[message.id])
        if isinstance(answer, str):
            self.say(EdgeAnswer(call=message.call, refused=answer))
            return
        self.say(EdgeAnswer(call=message.call))
        self.put(answer)


class PlayedHost:
    """One edge process and all around it: the only one of its host, or a part of it."""

    def __init__(self, folder: Path, tasks: TaskGroup, shard: EdgeShard | None = None) -> None:
        self.folder = folder
        self.worker = PlayedWorker()
        self.tasks = tasks
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setblocking(False)
        self.channel = ours
        small = EdgeParts(
            memory=lambda: 0, shard=shard or EdgeShard()
        )  # whatever the tests before have left in this process
        self.edge = Edge(folder, theirs, SystemClock(), tasks, small)
        self.sockets, self.datagrams = Sockets(), Sockets(udp=True)

    async def guard(self) -> None:
        """The warden's part."""
        told: tuple[set[tuple[str, int]], ...] = (set(), set())
        while True:
            await anyio.wait_readable(self.channel)
            data = self.channel.recv(1 << 20)
            if not data:
                return  # the edge goes on without us
            wanted = msgspec.msgpack.decode(data, type=WantedDoors)
            self._give(self.sockets, wanted.doors, told[0])
            self._give(self.datagrams, wanted.datagrams, told[1])

    def _give(self, sockets: Sockets, doors: tuple[tuple[str, int], ...], told: set[tuple[str, int]]) -> None:
        sockets.want(doors)
        told &= set(doors)
        for door, listener in sockets.bound.items():
            if door not in told:
                given = msgspec.msgpack.encode(GivenDoor(address=door[0], port=door[1], udp=sockets.udp))
                socket.send_fds(self.channel, [given], [each.fileno() for each in listener])
                told.add(door)

    async def publish(self, *machines: MachineRoute) -> None:
        """Returns once the edge listens for them."""
        for machine in machines:
            self.worker.put(machine)
        for each in machines:
            for service in each.services:
                for port in service.ports or ():
                    await eventually(partial(self._listens, port.port or 0, udp=service.protocol == "udp"))

    async def join(self, node: str, key: bytes) -> GatePlace:
        """It is a node of the cluster that has this key. Returns once its gate answers."""
        (self.folder / NODE_IDENTITY).write_text(identity_of(NodeId(node), [key]))
        self.worker.gate = gate = GatePlace(node=NodeId(node), host=HOST, port=free_port())
        self.worker.say(self.worker.whole())
        await eventually(partial(_listens_at, gate.port))
        return gate

    @property
    def gate_place(self) -> GatePlace:
        """Of a node of a cluster."""
        assert self.worker.gate is not None, "it has joined"
        return self.worker.gate

    def counted(self, name: str) -> int:
        return self.edge.counters.values.get(name, 0)

    def _listens(self, port: int, *, udp: bool) -> bool:
        return any(bound.port == port and bound.udp is udp and not bound.refused for bound in self.edge.bound())


def _listens_at(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex((HOST, port)) == 0


@asynccontextmanager
async def played_host(shard: EdgeShard | None = None) -> AsyncIterator[PlayedHost]:
    folder = Path(tempfile.mkdtemp(prefix="edge"))
    make_folder(folder, None)
    async with anyio.create_task_group() as tasks:
        host = PlayedHost(folder, tasks, shard)
        server = await asyncio.start_unix_server(host.worker, folder / "edge.sock")
        tasks.start_soon(host.guard)
        tasks.start_soon(host.edge.serve)
        try:
            yield host
        finally:
            server.close()
            tasks.cancel_scope.cancel()
            for listener in chain(*host.sockets.bound.values(), *host.datagrams.bound.values()):
                listener.close()
            shutil.rmtree(folder)


@asynccontextmanager
async def app_server(serve: Serve) -> AsyncIterator[int]:
    """A program that listens in a machine; its port."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, HOST, 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """A head as the machine gets it, and a body of a given length."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.partition(b":")[2]))
    body = b""
    while b"transfer-encoding: chunked" in head.lower() and not _LAST_CHUNK.search(body):
        body += await reader.readuntil(b"\r\n\r\n")
    return head + body


def says(answer: bytes, seen: list[bytes] | None = None) -> Serve:
    """An app that answers each request of a connection so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(reader)
            if seen is not None:
                seen.append(request)
            writer.write(answer)
            if b"connection: close" in request.lower():
                return

    return serve


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def ask(port: int, request: bytes) -> bytes:
    """All that comes until the edge closes the connection, or says nothing more for a request that it keeps open."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def deaf_client(port: int) -> socket.socket:
    """Reads nothing by itself, and its kernel little."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((HOST, port))
    made.setblocking(False)
    return made


async def looked(later: list[float], passed_s: float) -> None:
    """Returns once the edge has looked at its clients, so much later, and has had its turns for what follows."""
    later[0] += passed_s
    began = monotonic()
    await eventually(lambda: monotonic() > began + 0.3)
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


async def given_up(connection: HttpConnection | Http2Connection, later: list[float]) -> None:
    """Returns once it is."""
    began = later[0]
    while connection._transport is not None:
        assert later[0] < began + 300, "its time is over"
        await looked(later, 15)


def get(path: str = "/", *fields: str, host: str = "shop.localhost", method: str = "GET") -> bytes:
    """A request whose connection is closed after it."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *fields, "Connection: close", "", ""]
    return "\r\n".join(lines).encode()


async def publish_far(host: PlayedHost, far: PlayedHost, gate: GatePlace, *machines: MachineRoute) -> None:
    """Machines of the far host, which has no address of its own for them, as both hear of them."""
    for machine in machines:
        far.worker.put(msgspec.structs.replace(machine, publish=""))
        await eventually(lambda: machine.id in far.edge.gates.of)  # noqa: B023
    await host.publish(*(seen_from_afar(machine, gate) for machine in machines))


async def publish_abroad(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, *machines: MachineRoute, region: str = "iad", away_ms: int = 8
) -> None:
    """Machines of a host in another region, of which the edge of this one hears that the app has some there. The hosts
    share their address, so the one that is to be asked listens first."""
    for machine in machines:
        await host.publish(seen_from_abroad(machine, gate, region=region, away_ms=away_ms))
        far.worker.put(machine)
        await eventually(lambda: machine.id in far.edge.gates.of)  # noqa: B023


def seen_from_abroad(machine: MachineRoute, gate: GatePlace, *, region: str = "iad", away_ms: int = 8) -> MachineRoute:
    services = tuple(msgspec.structs.replace(each, concurrency=None) for each in machine.services)
    return msgspec.structs.replace(
        machine,
        id=MachineId(f"{machine.app}@{gate.node}"),
        state=State.STARTED,
        version="",
        cordoned=False,
        instance=None,
        hosts=(),
        services=services,
        gate=gate,
        region=region,
        away_ms=away_ms,
    )


def seen_from_afar(machine: MachineRoute, gate: GatePlace) -> MachineRoute:
    return msgspec.structs.replace(machine, gate=gate, instance=None, hosts=())
