"""A browser at the edge, as a person opens an app: a name, a certificate that an authority issued, and no port."""

import asyncio
import json
import os
import shutil
import signal
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import anyio
import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from hawker.config.machine import HttpOptions, Port
from tests.edge.edge_kit import HOST, PlayedHost, route
from tests.edge.test_acme import NAME, SHOP, Pebble, node_beside, pebble_at
from tests.edge.test_acme import pebble_program as pebble_program
from tests.edge.test_tls_connection import HTTPS
from tests.ports import free_port
from tests.waiting import eventually

CHROMIUM, CERTUTIL = shutil.which("chromium"), shutil.which("certutil")
WITHIN_S = 120.0
LARGE = 3_000_000
PAGE = """<!doctype html><title>shop</title><script type="module">
const found = { at: location.href, secure: isSecureContext };
try {
    found.protocol = performance.getEntriesByType("navigation")[0].nextHopProtocol;
    const many = Array.from({ length: 50 }, (_, number) => fetch(`/number/${number}`).then(answer => answer.text()));
    found.numbers = (await Promise.all(many)).map(Number);
    const large = await fetch("/large");
    found.encoding = large.headers.get("content-encoding");
    found.large = (await large.arrayBuffer()).byteLength;
} catch (error) { found.error = String(error); }
const talk = new WebSocket("/chat");
talk.onopen = () => talk.send(JSON.stringify(found));
</script>"""


class Shop:
    """The program in the machine: a page, what it fetches, and a WebSocket over which it says what it found."""

    def __init__(self) -> None:
        self.told: list[dict[str, object]] = []

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/chat":
            return None
        first, _, rest = request.path.lstrip("/").partition("/")
        body = {"": PAGE, "number": rest, "large": "na " * (LARGE // 3)}.get(first, "")
        kind = "text/html" if not first else "text/plain"
        status = HTTPStatus.OK if body else HTTPStatus.NOT_FOUND
        fields = Headers({"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"})
        return Response(status, status.phrase, fields, body.encode())

    async def chat(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):  # the browser is ended without a word
            while True:
                self.told.append(json.loads(await connection.recv()))


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[Shop, int]]:
    shop = Shop()
    async with serve(shop.chat, HOST, 0, process_request=shop.answer) as server:
        yield shop, next(iter(server.sockets)).getsockname()[1]


@asynccontextmanager
async def browser(home: Path, url: str, ports: dict[int, int]) -> AsyncIterator[None]:
    """For which the shop's name is this host. It trusts what its home's database has."""
    rules = ", ".join(f"MAP {NAME}:{told} {HOST}:{port}" for told, port in ports.items())
    options = (
        "--headless",
        "--no-sandbox",  # for root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        "--no-first-run",
        "--disable-features=HttpsUpgrades",  # else it asks for https by itself, unless that takes three seconds
        f"--user-data-dir={home / 'profile'}",
        f"--host-resolver-rules={rules}",
        "--remote-debugging-port=0",  # so it stays
    )
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    with (home / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(CHROMIUM), *options, url, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def trust(home: Path, pebble: Pebble) -> None:
    """The root of what Pebble issues, as an administrator gives it to a browser."""
    database = home / ".pki/nssdb"
    database.mkdir(parents=True)
    root = await asyncio.to_thread(read, pebble)
    (home / "root.pem").write_bytes(root)
    at = ("-d", f"sql:{database}")
    await anyio.run_process((str(CERTUTIL), *at, "-N", "--empty-password"))
    await anyio.run_process((str(CERTUTIL), *at, "-A", "-t", "C,,", "-n", "pebble", "-i", str(home / "root.pem")))


def read(pebble: Pebble) -> bytes:
    context = ssl.create_default_context(cafile=str(pebble.ca_file))
    with urllib.request.urlopen(pebble.root, context=context, timeout=WITHIN_S) as answer:
        return bytes(answer.read())


@pytest.mark.long(reason="starts a browser; tests of the connections beside this one have each part of it")
async def test_a_browser_opens_an_app_by_its_name(host: PlayedHost, pebble_program: Path, tmp_path: Path) -> None:
    """It types no `https://`, is sent there, trusts the certificate, and speaks HTTP/2 and WebSockets."""
    if CHROMIUM is None or CERTUTIL is None:
        pytest.skip("needs chromium and certutil of libnss3-tools: `make judges-setup` installs them")
    async with shop() as (app, inside):
        plain, secure = free_port(), free_port()
        ports = (
            Port(port=plain, handlers=("http",), force_https=True),
            Port(port=secure, handlers=HTTPS, http_options=HttpOptions(compress=True)),
        )
        machine = route(plain, inside)
        services = tuple(msgspec.structs.replace(each, ports=ports) for each in machine.services)
        await host.publish(msgspec.structs.replace(machine, services=services))
        async with pebble_at(pebble_program, plain) as pebble:
            node = await node_beside(host, pebble)
            await node.orders.put(SHOP, NAME)
            host.tasks.start_soon(node.buyer.serve)
            await eventually(lambda: host.edge.certificates.find(NAME) or node.order().reason)
            await trust(tmp_path, pebble)
            async with browser(tmp_path, f"http://{NAME}/", {80: plain, secure: secure}):
                await eventually(lambda: app.told, WITHIN_S)
    (found,) = app.told
    assert found == {
        "at": f"https://{NAME}:{secure}/",
        "secure": True,
        "protocol": "h2",
        "numbers": list(range(50)),
        "encoding": "zstd",
        "large": LARGE,
    }
