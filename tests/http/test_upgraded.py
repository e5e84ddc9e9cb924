"""A conversation gives back the place of the connection that it began as, and is understood in turns."""

import socket
import struct
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import anyio
import anyio.to_thread
import pytest
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from hawker.fair.round_robin import LARGE_PIECE
from hawker.http.incoming import conversations, incoming
from hawker.http.upgraded import UpgradedConnection

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PING = b"\x89\x80mask"
END = b"\x81\x83\0\0\0\0end"
CLOSED, CLOSED_TOO = b"\x88\x02\x03\xe8", b"\x88\x82\0\0\0\0\x03\xe8"


class Begun:
    ended = 0

    def end(self) -> None:
        self.ended += 1


def test_conversation_that_is_lost_ends_the_connection_that_it_began_as(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Exception | None] = []
    monkeypatch.setattr(WebSocketsSansIOProtocol, "connection_lost", lambda _, error: lost.append(error))
    talk, begun = UpgradedConnection.__new__(UpgradedConnection), Begun()
    talk.connection_lost(None)
    talk.begun_as = begun
    talk.connection_lost(None)
    assert lost == [None, None] and begun.ended == 1


class Heard:
    """An application that counts what it hears, and says so at the end."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while self.messages[-1:] != ["end"]:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            self.messages.append(message["text"])
        await send({"type": "websocket.close"})


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def port(heard: Heard) -> AsyncIterator[int]:
    config = uvicorn.Config(heard, http=incoming(None), ws=conversations(), lifespan="off", log_config=None)  # type: ignore[arg-type]  # it is only called
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            yield listener.getsockname()[1]
            server.should_exit = True


def text(message: bytes) -> bytes:
    return (
        b"\x81"
        + (bytes((0x80 | len(message),)) if len(message) < 126 else b"\xfe" + len(message).to_bytes(2, "big"))
        + b"\0\0\0\0"
        + message
    )


def converse(port: int, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60.0) as connection:
        connection.sendall(UPGRADE)
        answer = connection.recv(65536)
        assert b" 101 " in answer
        for piece in pieces:
            connection.sendall(piece)
        while data := connection.recv(65536):
            answer += data
            if answer.endswith(CLOSED):
                connection.sendall(CLOSED_TOO)
        return answer


@pytest.mark.anyio
async def test_messages_of_all_sizes_come_whole_and_in_their_order(port: int, heard: Heard) -> None:
    sent = ["a" * size for size in (1, 2000, 1, 60_000, *[3] * 500, 60_000)]
    pieces = [text(each.encode()) for each in sent]
    await anyio.to_thread.run_sync(converse, port, b"".join(pieces) + END)
    assert heard.messages == [*sent, "end"]


@pytest.mark.anyio
async def test_a_flood_of_pings_is_understood_in_small_pieces(
    port: int, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    understood = WebSocketsSansIOProtocol.data_received

    def note(self: Any, data: bytes) -> None:
        sizes.append(len(data))
        understood(self, data)

    monkeypatch.setattr(WebSocketsSansIOProtocol, "data_received", note)
    await anyio.to_thread.run_sync(converse, port, PING * 20_000 + END)
    assert heard.messages == ["end"]
    assert max(sizes[1:]) <= LARGE_PIECE and len(sizes) > 50


@pytest.mark.parametrize(("silent_ms", "ended"), [(19_000, False), (20_000, True)])
def test_conversation_with_a_client_that_answers_no_ping_ends_only_when_its_kernel_does_not_answer_either(
    silent_ms: int, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(WebSocketsSansIOProtocol, "keepalive_timeout", lambda _: done.append("ended"))
    monkeypatch.setattr(WebSocketsSansIOProtocol, "send_keepalive_ping", lambda _: done.append("pinged"))
    talk = UpgradedConnection.__new__(UpgradedConnection)
    told = struct.pack("=24xI24xII", 1, silent_ms, silent_ms)
    talk.transport, talk.ping_timeout = Mock(), 20.0
    talk.transport.get_extra_info.return_value = Mock(getsockopt=lambda *of: told)
    talk.keepalive_timeout()
    assert done == (["ended"] if ended else ["pinged"])
