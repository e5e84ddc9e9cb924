"""What is written, and what a connection makes of it; `test_transport` has the rest of what a server may answer."""

import asyncio
import socket

import anyio
import anyio.to_thread
import pytest

from hawker.errors import BadRequest
from hawker.http.http1 import Http1Connection, connect_tcp, connect_unix, encode_request

pytestmark = pytest.mark.anyio


def test_request_is_a_line_headers_and_a_body() -> None:
    assert encode_request("POST", "/a?b", [("host", "c"), ("content-length", "2")], b"{}") == (
        b"POST /a?b HTTP/1.1\r\nhost: c\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert encode_request("GET", "/", []) == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nhost: b", "a\nb", "a\rb", "a\0b", "a\r\n\r\n"])
def test_no_value_begins_a_line_of_its_own(value: str) -> None:
    with pytest.raises(BadRequest, match="line break"):
        encode_request("GET", "/", [("x", value)])
    with pytest.raises(BadRequest, match="line break"):
        encode_request("GET", f"/{value}", [])


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    ours.setblocking(False)
    return ours, theirs


async def test_unix_socket_carries_a_request_and_its_response() -> None:
    def serve(theirs: socket.socket) -> None:
        assert theirs.recv(100) == b"GET / HTTP/1.1\r\n\r\n"
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    ours, theirs = _pair()
    with theirs:
        connection = await connect_unix(ours, Http1Connection)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve, theirs)
            response = await connection.request(b"GET / HTTP/1.1\r\n\r\n", _soon())
        assert (response.status, response.body) == (200, b"hi") and connection.is_reusable
        connection.close()
    assert not connection.is_reusable


async def test_lost_connection_is_reported_once() -> None:
    ours, theirs = _pair()
    lost: list[Http1Connection] = []
    connection = await connect_unix(ours, lambda: Http1Connection(lost.append))
    theirs.close()
    with pytest.raises(ConnectionError):
        await connection.request(b"GET / HTTP/1.1\r\n\r\n", _soon())
    connection.close()
    assert lost == [connection] and not connection.was_stale


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        await connect_tcp("127.0.0.1", port, None, Http1Connection)


def _soon() -> float:
    return asyncio.get_running_loop().time() + 10.0
