"""What a connection makes of its bytes; `test_connection_pool` has the rest of what a server may answer."""

import asyncio
import socket

import anyio
import anyio.to_thread
import pytest

from hawker.http.connection_pool import Http1Connection, connect_tcp, connect_unix
from tests.ports import free_port

pytestmark = pytest.mark.anyio


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
    with pytest.raises(OSError):
        await connect_tcp("127.0.0.1", free_port(), None, Http1Connection)


def _soon() -> float:
    return asyncio.get_running_loop().time() + 10.0
