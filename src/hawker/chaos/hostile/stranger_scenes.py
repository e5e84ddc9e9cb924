"""Attacks on the clients' listener by whoever can open a connection: no token is needed."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from threading import Event

import anyio
from anyio.to_thread import run_sync
from dns.message import make_query

from hawker.chaos.hostile.lab import DOMAIN, ZONE_PORT
from hawker.chaos.hostile.stage import Findings, From, Scene, Stage

_TAKEN_MOST = 8 << 20
_SENT_MOST = 128 << 20
_MEMORY_MOST_MIB = 96.0
_CONNECTIONS = 1500
_LINE = b"GET /hawker/v1/health HTTP/1.1\r\nHost: x\r\n"


async def many_headers(stage: Stage) -> Findings:
    """A head of many headers that does not end."""

    def pieces() -> Iterator[bytes]:
        yield _LINE
        while True:
            yield b"".join(b"X-%d: " % number + b"x" * 1000 + b"\r\n" for number in range(64))

    return await _pour_at_once(stage, pieces)


async def one_long_header(stage: Stage) -> Findings:
    """A head of one header that does not end."""

    def pieces() -> Iterator[bytes]:
        yield _LINE + b"X-Long: "
        while True:
            yield b"x" * 65536

    return await _pour_at_once(stage, pieces)


async def one_long_path(stage: Stage) -> Findings:
    """A request line that does not end."""

    def pieces() -> Iterator[bytes]:
        yield b"GET /"
        while True:
            yield b"x" * 65536

    return await _pour_at_once(stage, pieces)


async def _pour_at_once(stage: Stage, pieces: Callable[[], Iterator[bytes]]) -> Findings:
    """On four connections at once; what one of them could send, and what it cost."""
    taken: list[int] = []

    async def pour() -> None:
        taken.append(await run_sync(_pour, stage, pieces()))

    async def several() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(pour)

    grown = await stage.growth_mib(several)
    found = [f"{max(taken) >> 20} MiB of one head were taken"] if max(taken) > _TAKEN_MOST else []
    return [*found, *_memory(grown)]


def _pour(stage: Stage, pieces: Iterator[bytes]) -> int:
    """How many bytes were sent until the other side closed."""
    sent = 0
    with suppress(OSError), stage.connect(5.0) as connection:
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
            if sent >= _SENT_MOST:
                break
    return sent


async def slow_heads(stage: Stage) -> Findings:
    """Many connections that send a byte of their head now and then."""
    return await _hold(stage, _LINE + b"X-Slow: ", 400)


async def slow_bodies(stage: Stage) -> Findings:
    """Many connections whose bodies are almost whole, for a route that takes a body from anybody."""
    head = (
        b"POST /v1/tokens/authenticate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1048575\r\n\r\n"
    )
    return await _hold(stage, head + b'{"header":"' + b"x" * 1_000_000, 300)


async def idle_connections(stage: Stage) -> Findings:
    """As many open connections as one address gets."""
    return await _hold(stage, b"", _CONNECTIONS)


async def _hold(stage: Stage, begin: bytes, count: int) -> Findings:
    """Open `count` connections, send `begin` on each, then a byte a second on all."""

    def hold() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        with ExitStack() as open_ones:
            held = []
            for _ in range(count):
                with suppress(OSError):
                    connection = open_ones.enter_context(stage.connect(1.0))
                    connection.settimeout(0.5)
                    connection.sendall(begin)
                    held.append(connection)
                if stage.clock.monotonic() > deadline:
                    break
            while stage.clock.monotonic() < deadline:
                for connection in held:
                    with suppress(OSError):
                        connection.send(b"x")
                Event().wait(1.0)

    return _memory(await stage.growth_mib(partial(run_sync, hold)))


async def pipelined_requests(stage: Stage) -> Findings:
    """Requests without end on connections whose answers nobody reads."""

    def ask() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        with suppress(OSError), stage.connect(0.5) as connection:
            while stage.clock.monotonic() < deadline:
                connection.sendall((_LINE + b"\r\n") * 1000)
        Event().wait(max(0.0, deadline - stage.clock.monotonic()))

    async def several() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(run_sync, ask)

    return _memory(await stage.growth_mib(several))


async def malformed_requests(stage: Stage) -> Findings:
    """Requests that two servers could read differently: none may be taken for a good one."""
    found = []
    for name, request in {
        "two lengths": b"POST /v1/tokens/authenticate HTTP/1.1\r\nHost: x\r\n"
        b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
        "length and chunks": b"POST /v1/tokens/authenticate HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a NUL in a header": b"GET /hawker/v1/health HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n",
        "a bare line feed": b"GET /hawker/v1/health HTTP/1.1\nHost: x\nX-A : b\n\n",
        "no version": b"GET /hawker/v1/node\r\n\r\n",
    }.items():
        answer = await run_sync(_asked, stage, request)
        if b" 500 " in answer[:20]:
            found.append(f"{name}: {answer[:40]!r}")
    return found


def _asked(stage: Stage, request: bytes) -> bytes:
    with suppress(OSError), stage.connect(2.0) as connection:
        connection.sendall(request)
        return connection.recv(4096)
    return b""


async def bad_tokens(stage: Stage) -> Findings:
    """Long tokens that are not valid, as fast as they can be sent."""
    deadline = stage.clock.monotonic() + stage.seconds
    token, accepted = "hwk_" + "A" * 8000, 0

    async def ask() -> None:
        nonlocal accepted
        while stage.clock.monotonic() < deadline:
            reply = await stage.attacker.call("GET", "/v1/apps", token=token)
            accepted += reply.ok

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(ask)
    return [f"{accepted} calls with a bad token were answered"] if accepted else []


async def routes_without_token(stage: Stage) -> Findings:
    """What answers a caller without a token, beside the health check and the pages about the API."""
    found = []
    for path in ("/metrics", "/metrics/machines", "/v1/apps", "/hawker/v1/node", "/hawker/v1/nodes",
                 "/internal/v1/findings", "/hawker/v1/images", "/hawker/v1/cluster/keys"):  # fmt: skip
        reply = await stage.attacker.call("GET", path, headers={"Authorization": ""})
        if reply.ok:
            found.append(f"GET {path} was answered")
    return found


def _memory(grown_mib: float) -> list[str]:
    return [f"the daemon grew by {grown_mib:.0f} MiB"] if grown_mib > _MEMORY_MOST_MIB else []


async def zone_questions(stage: Stage) -> Findings:
    """Questions to the platform's name server without pause, over UDP and over TCP."""
    question = make_query(f"shop.{DOMAIN}", "A").to_wire()
    over_tcp = struct.pack("!H", len(question)) + question

    def over_udp() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.bind((stage.ground.attackers, 0))
            while stage.clock.monotonic() < deadline:
                with suppress(OSError):
                    asking.sendto(question, (stage.ground.itself, ZONE_PORT))

    def converse() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        while stage.clock.monotonic() < deadline:
            with suppress(OSError), stage.connect(1.0, ZONE_PORT) as connection:
                while stage.clock.monotonic() < deadline:
                    connection.sendall(over_tcp * 100)
                    if not connection.recv(65536):
                        break

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for work in (over_udp, converse, converse):
                tasks.start_soon(run_sync, work)

    resolver = int((stage.daemon.place.dns / "lock").read_text())
    return _memory(await stage.growth_mib(all_of_them, resolver))


SCENES = (
    Scene("a head of many headers", From.STRANGER, "memory", many_headers, "64 KiB of a head", short=True),
    Scene(
        "one header without an end", From.STRANGER, "loop time", one_long_header, "heads are counted in small pieces"
    ),
    Scene("a path without an end", From.STRANGER, "loop time", one_long_path, "heads are counted in small pieces"),
    Scene("heads a byte at a time", From.STRANGER, "connections", slow_heads, "15 s for a head"),
    Scene("bodies a byte at a time", From.STRANGER, "memory", slow_bodies, "16 KiB a second, turns by address"),
    Scene("idle connections", From.STRANGER, "descriptors", idle_connections, "places by address, a reserve"),
    Scene("answers that nobody reads", From.STRANGER, "memory", pipelined_requests, "16 requests behind each other"),
    Scene("malformed requests", From.STRANGER, "the parser", malformed_requests, "one parser, typed refusals"),
    Scene("long bad tokens", From.STRANGER, "loop time", bad_tokens, "one request of an address in a turn"),
    Scene(
        "calls without a token", From.STRANGER, "the API", routes_without_token, "each route says whether it takes one"
    ),
    Scene(
        "questions to the platform's zone",
        From.STRANGER,
        "the resolver",
        zone_questions,
        "rates of networks and of all",
    ),
)
