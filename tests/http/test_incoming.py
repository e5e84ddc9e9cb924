"""What strangers send to a listener, over real sockets."""

import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest
import uvicorn

from hawker.fair.connections import ConnectionTable
from hawker.fair.turns import Share
from hawker.http.incoming import HEAD_BYTES, HEAD_S, PIPELINED, IncomingConnection, conversations, incoming
from tests.waiting import eventually

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
def table() -> ConnectionTable:
    share = Share(name="connections", total=6, each=4, key="address", over="closed")
    return ConnectionTable(share, lambda: False)


@pytest.fixture
async def port(request: pytest.FixtureRequest, table: ConnectionTable) -> AsyncIterator[int]:
    head_s: float = getattr(request, "param", SOON_S)
    config = uvicorn.Config(
        hello,
        http=incoming(table, head_s),
        ws=conversations(),  # type: ignore[arg-type]  # it is only called
        lifespan="off",
        log_config=None,
        timeout_keep_alive=60,
    )
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
    assert IncomingConnection.head_s == HEAD_S >= 10


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD, *[b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(1000)]),
        (HEAD, b"x-long: ", *[b"y" * 65536] * 64),
        (b"GET /", *[b"y" * 65536] * 64),
        (b"G" * (4 * 1024 * 1024),),
    ],
    ids=["headers", "header", "url", "method"],
)
async def test_a_head_without_end_is_refused_before_much_of_it_is_kept(port: int, pieces: tuple[bytes, ...]) -> None:
    def send() -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                return connection.recv(65536)
            except (ConnectionResetError, BrokenPipeError):  # it is closed while we send still
                return b""

    heard = await anyio.to_thread.run_sync(send)
    assert heard == b"" or heard.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
async def test_a_head_that_is_just_small_enough_is_answered(port: int) -> None:
    filler = b"x-filler: %s\r\n" % (b"y" * (HEAD_BYTES - 1024))
    heard = await anyio.to_thread.run_sync(talk, port, HEAD + filler + b"connection: close\r\n\r\n")
    assert heard.startswith(ANSWER)


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
async def test_a_trailer_without_end_is_not_kept(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    trailer = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(200))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await anyio.to_thread.run_sync(talk, port, head, *[trailer] * 50)


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
async def test_requests_behind_each_other_are_bounded(port: int) -> None:
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await anyio.to_thread.run_sync(talk, port, *[(HEAD + b"\r\n") * (PIPELINED * 40)] * 50)


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
async def test_a_newcomer_takes_the_place_of_a_connection_that_rests(port: int, table: ConnectionTable) -> None:
    held = [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) for _ in range(20)]
    try:
        heard = await anyio.to_thread.run_sync(talk, port, HEAD + b"connection: close\r\n\r\n")
        assert heard.startswith(ANSWER) and len(table) <= 4
    finally:
        for each in held:
            each.close()
    await eventually(lambda: len(table) == 0)


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
async def test_a_body_that_goes_on_after_the_answer_is_read_slowly(port: int) -> None:
    """Else who is refused by the head alone, as by a rate limit, has as much read as the network carries."""
    body, most = 64 << 20, 32 << 20

    def pour() -> tuple[bytes, int]:
        sent = 0
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
            connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % body)
            heard = connection.recv(65536)
            connection.settimeout(SOON_S)
            with suppress(TimeoutError):
                while sent < body:
                    sent += connection.send(b"x" * 65536)
        return heard, sent

    heard, sent = await anyio.to_thread.run_sync(pour)
    assert heard.startswith(ANSWER) and sent < most


@pytest.mark.parametrize("port", [DEADLINE_S], indirect=True)
async def test_a_request_behind_such_a_body_is_answered(port: int) -> None:
    first = HEAD + b"content-length: 40000\r\n\r\n"
    heard = await anyio.to_thread.run_sync(talk, port, first, b"x" * 40_000 + HEAD + b"connection: close\r\n\r\n")
    assert heard.count(ANSWER) == 2
