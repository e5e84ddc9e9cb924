"""Clients of an edge: what counts as lost, and what any client asks once more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count

import anyio
import pytest

from hawker.chaos.deploys.edge_clients import EdgeClients
from hawker.clock import SystemClock
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
HERE = "127.0.0.1"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """The port at which connections are served so, until they are closed here."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, HERE, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def edge(answer: Callable[[int], bytes | None]) -> AsyncIterator[EdgeClients]:
    """`answer` is asked with the number of the request; for None the connection ends."""
    numbers = count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536) and (said := answer(next(numbers))) is not None:
            writer.write(said)

    async with listening(serve) as port:
        yield EdgeClients([HERE], port, SystemClock(), 0.001)


async def counted(clients: EdgeClients, requests: int) -> list[str]:
    """What was lost of at least so many."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clients.serve)
        await eventually(lambda: clients.sent([HERE]) >= requests)
        tasks.cancel_scope.cancel()
    return [each.what for each in clients.lost([HERE])]


async def test_answers_of_200_are_not_lost() -> None:
    async with edge(lambda number: _OK) as clients:
        assert await clients.answers(HERE)
        assert await counted(clients, 50) == []
        clients.forget()
        assert clients.sent([HERE]) == 0


async def test_another_status_and_a_fresh_connection_that_ends_are_lost() -> None:
    bad = _OK.replace(b"200 OK", b"503 Busy")
    async with edge(lambda number: bad if number == 7 else _OK) as clients:
        assert await counted(clients, 50) == ["503"]
    async with edge(lambda number: None) as clients:
        assert not await clients.answers(HERE)
        lost = await counted(clients, 4)
        assert lost and all(each.startswith("_Closed") for each in lost)


async def test_a_connection_that_ended_between_two_requests_loses_none() -> None:
    closes = _OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with edge(lambda number: closes) as clients:
        assert await counted(clients, 50) == []


async def test_nobody_who_listens_is_a_loss() -> None:
    clients = EdgeClients([HERE], 1, SystemClock(), 0.001)
    assert (await counted(clients, 4))[0].startswith("OSError")
    assert clients.lost([]) == []


async def test_clients_ask_what_they_are_told_to_and_keep_what_they_are_told_to() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            heard.append(data)
            writer.write(_OK)

    ask = b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    async with listening(serve) as port:
        clients = EdgeClients([HERE], port, SystemClock(), 0.001, ask=lambda edge: ask, keeps=(False,))
        assert await counted(clients, 5) == []
    assert set(heard) == {ask} and clients.answered >= 4
    assert clients.slowest_s([HERE]) > 0 and clients.slowest_s([]) == 0


async def test_a_request_that_began_before_all_was_forgotten_is_not_lost_after_it() -> None:
    ends = anyio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        if ends.is_set():
            writer.write(_OK)
        else:
            await ends.wait()

    async with listening(serve) as port, anyio.create_task_group() as tasks:
        clients = EdgeClients([HERE], port, SystemClock(), 0.001, keeps=(False,))
        tasks.start_soon(clients.serve)
        await eventually(lambda: clients.sent([HERE]) == 1)
        clients.forget()
        ends.set()
        await eventually(lambda: clients.answered > 0)
        tasks.cancel_scope.cancel()
    assert clients.lost([HERE]) == []
