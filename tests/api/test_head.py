"""A request's head has to come in time; whoever keeps to that never notices."""

import socket
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest
import uvicorn

from hawker.api.head import HEAD_S, HeadDeadline, within

pytestmark = pytest.mark.anyio

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
    config = uvicorn.Config(hello, http=within(head_s), lifespan="off", log_config=None, timeout_keep_alive=60)
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
    assert HeadDeadline.head_s == HEAD_S >= 10
