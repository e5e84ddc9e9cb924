"""Attacks on the process that serves published ports, which all tenants of a host share: by strangers at the
bystander's own port, and by a tenant who owns both the clients and the machine behind them.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from threading import Event

import anyio
from anyio.to_thread import run_sync

from hawker.chaos.hostile.bystander import EDGE_PORT
from hawker.chaos.hostile.stage import Attack, Findings, From, Scene, Stage
from hawker.chaos.hostile.tenant_scenes import storm

_PORT, _TLS_PORT, _ASLEEP_PORT, _UDP_PORT = 8090, 8443, 8100, 8153
_SENDERS, _DATAGRAM_BYTES = 200, 1200
_ASLEEP_PORTS = 12
_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
_MEMORY_MOST_MIB = 384.0
_THREADS = 4


async def slow_heads(stage: Stage) -> Findings:
    """Connections to the bystander's port that send a byte of their head now and then."""
    return await _held(stage, EDGE_PORT, _HEAD + b"X-Slow: ", 400)


async def slow_bodies(stage: Stage) -> Findings:
    """Requests to the attacker's port whose bodies come a byte at a time, as many as one address gets."""
    async with published(stage, _PORT):
        return await _held(stage, _PORT, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", 600)


async def untaken_answers(stage: Stage) -> Findings:
    """Answers without an end that nobody takes: the attacker has both the machine that gives them and the clients."""
    async with published(stage, _PORT, "without_end"):
        return await _held(stage, _PORT, _HEAD + b"\r\n", 600, drip=b"")


async def connection_flood(stage: Stage) -> Findings:
    """Connections to the attacker's port, opened and closed without pause."""

    def flood() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        while stage.clock.monotonic() < deadline:
            with suppress(OSError), stage.connect(1.0, _PORT) as connection:
                connection.sendall(b"GET")

    async with published(stage, _PORT):
        return await measured(stage, partial(_several, flood))


async def request_flood(stage: Stage) -> Findings:
    """Requests to the attacker's own machine without pause, over hundreds of connections."""
    url = f"http://{stage.ground.itself}:{_PORT}"

    async def ask(number: int) -> None:
        await stage.attacker.call("GET", "/", url=url)

    async with published(stage, _PORT):
        return await measured(stage, partial(storm, stage, 256, ask))


async def malformed_requests(stage: Stage) -> Findings:
    """At the bystander's port what two servers could read differently: none may reach the machine as two."""
    begins = (
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    )

    def answers() -> list[bytes]:
        return [_answer(stage, begin) for begin in begins]

    said = await run_sync(answers)
    return [f"a malformed request was answered {each[:40]!r}" for each in said if b" 200 " in each[:20]]


def _answer(stage: Stage, begin: bytes) -> bytes:
    with suppress(OSError), stage.connect(5.0, EDGE_PORT) as connection:
        connection.sendall(begin)
        return connection.recv(4096)
    return b""


async def handshakes(stage: Stage) -> Findings:
    """Handshakes of TLS without pause, whole ones and ones that stop in the middle."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def shake() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        while stage.clock.monotonic() < deadline:
            with suppress(OSError), stage.connect(1.0, _TLS_PORT) as connection:
                connection.sendall(b"\x16\x03\x01\x02\x00\x01")
            with suppress(OSError), stage.connect(1.0, _TLS_PORT) as connection:
                context.wrap_socket(connection, server_hostname="x.example.com").close()

    async with published(stage, _TLS_PORT, handlers=("tls", "http")):
        return await measured(stage, partial(_several, shake))


async def held_requests(stage: Stage) -> Findings:
    """Requests at a dozen ports of a machine that is asleep and cannot be started, as many as one address gets."""
    services = [_service(_ASLEEP_PORT + number, ("http",), autostart=True) for number in range(_ASLEEP_PORTS)]
    config = {
        "image": "hawker/hello",
        "guest": {"cpu_kind": "performance", "cpus": 16, "memory_mb": 131072},
        "services": services,
        "metadata": {"hawker_publish": "*"},
    }
    made = await stage.attacker.order(config, skip_launch=True)
    if not made.ok:
        raise RuntimeError(f"the attacker gets no machine: {made.problem}")
    await _served(stage, _ASLEEP_PORT)

    def wait(number: int) -> None:
        hold(stage, _ASLEEP_PORT + number, _HEAD + b"\r\n", 50, b"")

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(_ASLEEP_PORTS):
                tasks.start_soon(run_sync, wait, number)

    return await measured(stage, all_of_them)


async def datagram_flood(stage: Stage) -> Findings:
    """Datagrams without pause from hundreds of ports to a port of the attacker's, each of them a flow of its own."""
    service = {"protocol": "udp", "internal_port": 8080, "ports": [{"port": _UDP_PORT}]}
    config = {"services": [service, _service(_PORT, ("http",))], "metadata": {"hawker_publish": "*"}}

    def flood() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        with ExitStack() as open_ones:
            senders = [open_ones.enter_context(_sender(stage)) for _ in range(_SENDERS)]
            while stage.clock.monotonic() < deadline:
                noise = stage.clock.token_bytes(_DATAGRAM_BYTES)
                for sender in senders:
                    with suppress(OSError):
                        sender.sendto(noise, (stage.ground.itself, _UDP_PORT))

    async with stage.attacker.machine("serve", **config):
        await _served(stage, _PORT)
        return await measured(stage, partial(_several, flood))


def _sender(stage: Stage) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    sender.bind((stage.ground.attackers, 0))
    return sender


def _service(port: int, handlers: tuple[str, ...], **more: object) -> dict[str, object]:
    ports = [{"port": port, "handlers": list(handlers), "tls_options": {"default_self_signed": True}}]
    if "tls" not in handlers:
        ports[0].pop("tls_options")
    return {"protocol": "tcp", "internal_port": 8080, "ports": ports, **more}


@asynccontextmanager
async def published(
    stage: Stage, port: int, payload: str = "serve", handlers: tuple[str, ...] = ("http",)
) -> AsyncIterator[str]:
    """The id of a machine of the attacker's at this port of the host."""
    config = {"services": [_service(port, handlers)], "metadata": {"hawker_publish": "*"}}
    async with stage.attacker.machine(payload, **config) as machine_id:
        await _served(stage, port)
        yield machine_id


async def _served(stage: Stage, port: int) -> None:
    """Raises `TimeoutError` when the host does not listen there."""
    with anyio.fail_after(30.0):
        while not await run_sync(_listens, stage, port):
            await stage.clock.sleep(0.1)


def _listens(stage: Stage, port: int) -> bool:
    with suppress(OSError), stage.connect(1.0, port):
        return True
    return False


async def _several(work: Callable[[], None]) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(_THREADS):
            tasks.start_soon(run_sync, work)


async def _held(stage: Stage, port: int, begin: bytes, count: int, *, drip: bytes = b"x") -> Findings:
    return await measured(stage, partial(run_sync, hold, stage, port, begin, count, drip))


def hold(stage: Stage, port: int, begin: bytes, count: int, drip: bytes) -> None:
    """Open `count` connections, send `begin` on each, then `drip` now and then on all."""
    deadline = stage.clock.monotonic() + stage.seconds
    with ExitStack() as open_ones:
        held = []
        for _ in range(count):
            with suppress(OSError):
                connection = open_ones.enter_context(stage.connect(1.0, port))
                connection.settimeout(0.5)
                connection.sendall(begin)
                held.append(connection)
            if stage.clock.monotonic() > deadline:
                break
        while stage.clock.monotonic() < deadline:
            for connection in held if drip else ():
                with suppress(OSError):
                    connection.send(drip)
            Event().wait(0.5)


async def measured(stage: Stage, attack: Callable[[], Awaitable[object]]) -> Findings:
    """How the edge's memory took it."""
    grown = await stage.growth_mib(attack, stage.edge_pid)
    return [f"the edge grew by {grown:.0f} MiB"] if grown > _MEMORY_MOST_MIB else []


def _scene(name: str, by: From, shared: str, attack: Attack, held_by: str, *, short: bool = False) -> Scene:
    return Scene(name, by, shared, attack, held_by, short=short)


_PLACES = "places by address"

SCENES = (
    _scene("heads a byte at a time, at the edge", From.STRANGER, "the edge's connections", slow_heads,
           f"10 s for a head, {_PLACES}"),
    _scene("bodies a byte at a time, at the edge", From.TENANT, "the edge's connections", slow_bodies, _PLACES),
    _scene("answers that nobody takes, at the edge", From.TENANT, "the edge's memory", untaken_answers,
           f"256 KiB for each, {_PLACES}"),
    _scene("connections without pause, at the edge", From.STRANGER, "the edge's loop time", connection_flood, _PLACES),
    _scene("requests without pause, at the edge", From.TENANT, "the edge's loop time", request_flood, _PLACES),
    _scene("malformed requests, at the edge", From.STRANGER, "the edge's parser", malformed_requests,
           "one parser, heads that are written anew", short=True),
    _scene("handshakes without pause", From.STRANGER, "the edge's loop time", handshakes,
           "50 a second of a network, 64 at once of an address"),
    _scene("datagrams without pause", From.STRANGER, "the edge's loop time", datagram_flood,
           "flows of an app and of an address, what the kernel drops"),
    _scene("requests that wait for ever", From.TENANT, "the edge's queues", held_requests,
           "1,000 of an app, the last fifth for others"),
)  # fmt: skip
