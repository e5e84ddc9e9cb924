import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest
import uvicorn

from hawker.api.contract.app import CREATE_APP, LIST_APPS, App
from hawker.api.handlers import Handlers
from hawker.api.listener import (
    HEADER_TIMEOUT_S,
    HeaderTimeout,
    bind,
    header_timeout,
    listening,
    serving,
    url_of,
)
from hawker.api.route import Call
from hawker.api.routes import ROUTES
from hawker.api.server import Server
from hawker.clock import SystemClock
from hawker.errors import CannotStart
from tests.api.samples import sample
from tests.api.serving import Fake, authenticate, served, use

pytestmark = pytest.mark.anyio


def _server() -> Server:
    return Server(Fake().handlers(ROUTES), authenticate, SystemClock())


async def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    async with listening(_server(), "127.0.0.1", 0) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(CannotStart, match=rf"cannot listen on 127.0.0.1:{port}: .*choose another with --listen"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99999), ("no such host", 0)])
def test_what_is_no_address_is_refused(host: str, port: int) -> None:
    with pytest.raises(CannotStart, match="cannot listen on"):
        bind(host, port)


def test_an_ipv6_address_is_in_brackets_in_the_url() -> None:
    listener = bind("::1", 0)
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


async def test_a_bound_socket_is_served_and_closed_at_the_end() -> None:
    listener = bind("127.0.0.1", 0)
    async with serving(_server(), listener) as url, aiohttp.ClientSession(url) as http, http.get("/docs") as response:
        assert response.status == 200
    assert listener.fileno() == -1
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


async def test_a_call_under_way_ends_before_the_server_does() -> None:
    begun, go = anyio.Event(), anyio.Event()

    async def create(call: Call[Any, Any, Any]) -> App:
        begun.set()
        await go.wait()
        answer: App = sample(App)
        return answer

    handlers = Handlers()
    handlers.on(CREATE_APP, create)
    answers: list[App] = []
    async with served(handlers, [CREATE_APP]) as node, anyio.create_task_group() as group:

        async def ask() -> None:
            answers.append(await use(node, CREATE_APP))

        group.start_soon(ask)
        await begun.wait()
        node.server.stop()
        go.set()
    assert answers == [sample(App)]


async def test_an_error_inside_is_not_hidden_by_the_end() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with listening(_server(), "127.0.0.1", 0):
            raise LookupError("inside")
    assert caught.group_contains(LookupError)


async def test_two_servers_do_not_know_each_other() -> None:
    async with served(Fake().handlers(ROUTES)) as one, served(Fake().handlers(ROUTES)) as two:
        assert one.url != two.url
        assert await use(one, LIST_APPS) == await use(two, LIST_APPS)


async def test_a_server_that_stops_answers_what_was_on_its_way_and_asks_for_another_connection() -> None:
    listener = bind("127.0.0.1", 0)
    async with anyio.create_task_group() as group, aiohttp.ClientSession(url_of(listener)) as http:
        stop, up = anyio.Event(), anyio.Event()

        async def serve() -> None:
            async with serving(_server(), listener):
                up.set()
                await stop.wait()

        group.start_soon(serve)
        await up.wait()
        async with http.get("/docs") as before:
            assert await before.read() and "close" not in before.headers.get("connection", "")
        stop.set()
        while listener.fileno() != -1:
            await anyio.lowlevel.checkpoint()
        async with http.get("/docs") as late:  # on the connection that is open still
            assert (late.status, late.headers["connection"]) == (200, "close")


SOON_S = 0.2
LATER_S = 1.5  # where one head has to come before it, also on a busy host
DEADLINE_S = 60.0
HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"
ANSWER = b"HTTP/1.1 200 OK"


async def hello(scope: object, receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"hi"})  # type: ignore[operator]


@pytest.fixture
async def port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    head_s: float = getattr(request, "param", SOON_S)
    config = uvicorn.Config(hello, http=header_timeout(head_s), lifespan="off", log_config=None, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            yield listener.getsockname()[1]
            server.should_exit = True


def talk(port: int, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        heard = b""
        while data := connection.recv(65536):
            heard += data
        return heard


@pytest.mark.parametrize("pieces", [(), (b"G",), (HEAD,), (HEAD, b"x-slow: 1\r\n")])
async def test_a_head_that_never_ends_is_not_waited_for(port: int, pieces: tuple[bytes, ...]) -> None:
    assert await anyio.to_thread.run_sync(talk, port, *pieces) == b""


@pytest.mark.parametrize("port", [LATER_S], indirect=True)
async def test_a_second_request_on_a_connection_is_held_to_it_too(port: int) -> None:
    heard = await anyio.to_thread.run_sync(talk, port, HEAD + b"\r\n", b"GET /")
    assert heard.count(ANSWER) <= 1 and heard.startswith(ANSWER)


@pytest.mark.parametrize("port", [LATER_S], indirect=True)
async def test_a_connection_that_rests_between_requests_is_kept(port: int) -> None:
    def rest() -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
            connection.sendall(HEAD + b"\r\n")
            answered(connection)
            connection.settimeout(LATER_S + SOON_S)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(DEADLINE_S)
            connection.sendall(HEAD + b"\r\n")
            return answered(connection)

    def answered(connection: socket.socket) -> bytes:
        heard = b""
        while not heard.endswith(b"hi"):
            heard += connection.recv(65536)
        return heard

    assert (await anyio.to_thread.run_sync(rest)).startswith(ANSWER)


def test_the_deadline_is_long_enough_for_a_slow_line() -> None:
    assert HeaderTimeout.header_timeout_s == HEADER_TIMEOUT_S >= 10
