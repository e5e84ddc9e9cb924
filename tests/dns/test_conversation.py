"""Conversations over TCP, at loopback: clients that read nothing, and clients that say their last early."""

import asyncio
import errno
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import anyio
import pytest
from dns import message

from hawker.clock import SystemClock
from hawker.dns import server, zone
from hawker.dns.conversation import converse
from hawker.dns.resolver import AskingNetwork, NameResolver
from hawker.dns.server import NetworkSockets
from hawker.dns.zone import QUESTIONS, ZoneSockets
from hawker.fair.turns import Share, Turns
from tests.dns.known import MINE
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

LARGE = bytes(60_000)
"""An answer."""
SHARE = Share(name="connections", total=1, each=1, key="asker", over="closed")
Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Served) -> AsyncIterator[int]:
    made = await asyncio.start_server(serve, "::1", 0)
    try:
        yield made.sockets[0].getsockname()[1]
    finally:
        made.close()


def framed(number: int = 1) -> bytes:
    question = message.make_query("shop.internal", "AAAA").to_wire()
    return (struct.pack("!H", len(question)) + question) * number


@pytest.mark.parametrize("whose", ["machine", "anybody"])
async def test_a_client_that_reads_no_answer_loses_its_socket_with_its_place(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Turns(SHARE)
    async with anyio.create_task_group() as tasks:
        if whose == "machine":
            monkeypatch.setattr(server, "_IDLE_S", 0.3)
            resolver = Mock(spec=NameResolver, at_once=Mock(return_value=LARGE))
            serve: Served = NetworkSockets(resolver, AskingNetwork(MINE), tasks, places)._converse
        else:
            monkeypatch.setattr(zone, "_IDLE_S", 0.3)
            monkeypatch.setattr(zone, "zone_answer", lambda data, known, tcp: LARGE)
            sockets = ZoneSockets(Mock(), SystemClock())
            monkeypatch.setattr(sockets, "_connections", places)
            serve = sockets.converse
        async with listening(serve) as port:
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("::1", port))
                client.sendall(framed(int(QUESTIONS.burst)))
                await eventually(lambda: places.used == 1)
                await eventually(lambda: places.used == 0)
                await eventually(lambda: client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET)


async def test_a_client_that_says_its_last_early_gets_every_answer() -> None:
    places, asked = Turns(SHARE), list[bytes]()

    async def answer(question: bytes) -> bytes:
        asked.append(question)
        return LARGE

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await converse(reader, writer, places, "asker", 30.0, answer)

    async with listening(serve) as port:
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(framed(100))
        writer.write_eof()
        await eventually(lambda: places.used == 1)
        assert await reader.read() == (struct.pack("!H", len(LARGE)) + LARGE) * 100
        writer.close()
    assert len(asked) == 100
    await eventually(lambda: places.used == 0)
