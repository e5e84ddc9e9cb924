"""Who gets a connection, and which: without a socket and without a clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.http.connection_pool import MAX_IDLE_S, ConnectionPool, HttpTransport, NotSent
from hawker.http.message import MAX_HEAD_BYTES, HttpResponse, origin_of
from tests.ports import free_port


def pool(max_in_use: int = 0, max_idle_s: float = 15.0) -> ConnectionPool[str, str]:
    return ConnectionPool(max_in_use=max_in_use, max_idle_s=max_idle_s)


def test_connection_used_last_is_taken_first() -> None:
    one = pool()
    one.put("a", 1.0)
    one.put("b", 2.0)
    assert [one.take(), one.take(), one.take()] == ["b", "a", None]


def test_connection_idle_for_15_s_expires() -> None:
    one = pool()
    one.put("a", 1.0)
    one.put("b", 2.0)
    assert one.expire(15.9) == []
    assert one.expire(16.0) == ["a"]
    assert one.take() == "b"


def test_discarded_connection_is_not_taken() -> None:
    one = pool()
    one.put("a", 1.0)
    one.discard("a")
    one.discard("b")
    assert one.take() is None


def test_cleared_pool_returns_its_idle_connections() -> None:
    one = pool()
    one.put("a", 1.0)
    assert one.clear() == ["a"] and one.take() is None


def test_pool_without_a_limit_lets_everyone_enter() -> None:
    one = pool()
    assert all(one.enter() for _ in range(1000))
    assert one.leave() is None


def test_requests_above_the_limit_wait_first_come_first_served() -> None:
    one = pool(max_in_use=1)
    assert one.enter() and not one.enter()
    one.queue("first")
    one.queue("second")
    assert (one.leave(), one.leave(), one.leave()) == ("first", "second", None)
    assert one.enter()


def test_waiter_that_gives_up_is_passed_over() -> None:
    one = pool(max_in_use=1)
    one.enter()
    one.queue("first")
    one.queue("second")
    assert one.abandon("first") is None
    assert one.leave() == "second"


def test_waiter_that_gives_up_as_its_turn_comes_passes_it_on() -> None:
    one = pool(max_in_use=1)
    one.enter()
    one.queue("first")
    one.queue("second")
    assert one.leave() == "first"
    assert one.abandon("first") == "second"
    assert one.leave() is None and one.enter()


@given(st.integers(1, 4), st.lists(st.integers(0, 2), max_size=60))
def test_never_more_requests_under_way_than_allowed_and_none_is_forgotten(limit: int, moves: list[int]) -> None:
    one: ConnectionPool[str, int] = ConnectionPool(max_in_use=limit, max_idle_s=15.0)
    under_way, waiting = 0, list[int]()
    for number, move in enumerate(moves):
        if move == 0:
            if one.enter():
                assert not waiting
                under_way += 1
            else:
                one.queue(number)
                waiting.append(number)
        elif move == 1 and under_way:
            following = one.leave()
            assert following == (waiting.pop(0) if waiting else None)
            under_way -= following is None
        elif move == 2 and waiting:
            assert one.abandon(waiting.pop()) is None
        assert under_way <= limit
    assert not waiting or under_way == limit


pytestmark = pytest.mark.anyio

Script: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUESTION = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nHawker-Version: v\r\n\r\nfine"
LONG_S = 60.0


@dataclass
class Origin:
    transport: HttpTransport
    server: asyncio.Server
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    async def ask(self, method: str = "POST", timeout_s: float = LONG_S) -> HttpResponse:
        return await self.transport.request(method, QUESTION, timeout_s)


@asynccontextmanager
async def origin(*scripts: Script, most: int = 0, queue_s: float = LONG_S) -> AsyncIterator[Origin]:
    """One script for each connection, the last for all that follow."""
    left = list(scripts)
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        script = left.pop(0) if len(left) > 1 else left[0]
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", free_port())  # nobody else takes it when this one has left
    place = origin_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert place is not None
    transport = HttpTransport(place, max_connections=most, connect_s=LONG_S, queue_s=queue_s)
    try:
        yield Origin(transport, server, connections)
    finally:
        await transport.close()
        server.close()


def answering(*answers: bytes) -> Script:
    """One for each question, then the end of the connection; for ever the same if it is one that ends in `fine`."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        if answers == (FINE,):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(FINE)

    return script


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": uvloop}) for uvloop in (False, True)])
async def test_connections_are_kept_between_requests(anyio_backend: object) -> None:
    async with origin(answering(FINE)) as there:
        for _ in range(3):
            answer = await there.ask()
            assert (answer.status, answer.body, answer.headers["hawker-version"]) == (200, b"fine", "v")
        assert len(there.connections) == 1


async def test_requests_above_the_limit_wait_for_a_connection() -> None:
    async with origin(answering(FINE), most=2) as there:
        answers: list[HttpResponse] = []

        async def ask() -> None:
            answers.append(await there.ask())

        async with anyio.create_task_group() as tasks:
            for _ in range(7):
                tasks.start_soon(ask)
        assert len(answers) == 7 and len(there.connections) <= 2


async def test_request_that_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    async with origin(answering(FINE), most=1) as there:
        answers: list[HttpResponse] = []

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                answers.append(await there.ask())

        scopes = [anyio.CancelScope() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for scope in scopes:
                tasks.start_soon(ask, scope)
            await anyio.lowlevel.checkpoint()
            scopes[1].cancel()
            scopes[2].cancel()
        assert len(answers) == 2
        assert (await there.ask()).body == b"fine"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfi\r\n2\r\nne\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nfine",
        b"HTTP/1.1 100 Continue\r\n\r\n" + FINE,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfine",
    ],
)
async def test_every_form_of_a_response_is_read(answer: bytes) -> None:
    async with origin(answering(answer), answering(FINE)) as there:
        assert (await there.ask()).body == b"fine"
        assert (await there.ask("GET")).body == b"fine"


async def test_kept_connection_that_was_closed_is_replaced_for_requests_that_may_be_repeated() -> None:
    asked = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads a second question and answers nothing."""
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FINE)
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with origin(once) as there:
        await there.ask()
        assert (await there.ask("GET")).body == b"fine"
        with pytest.raises(ConnectionError):
            await there.ask("POST")
        assert asked == 2 and len(there.connections) == 2


@pytest.mark.parametrize(("method", "error"), [("GET", NotSent), ("DELETE", ConnectionError)])
async def test_whether_a_request_was_sent_is_told_of_both_tries(method: str, error: type[Exception]) -> None:
    """The node took it on a kept connection, and died. Nobody is there for the second try."""

    async def dying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FINE)
        await reader.readuntil(b"\r\n\r\n")
        there.server.close()

    async with origin(dying) as there:
        await there.ask()
        with pytest.raises(error):
            await there.ask(method)


async def test_request_without_an_answer_in_time_is_a_timeout() -> None:
    """Of a connection that is there: one that is not opened in time is another error."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FINE)
        await reader.read()

    async with origin(once, answering(FINE)) as there:
        await there.ask()
        with pytest.raises(TimeoutError):
            await there.ask("GET", timeout_s=0.01)
        assert (await there.ask()).body == b"fine"
        assert len(there.connections) == 2


async def test_response_to_a_cancelled_request_is_not_taken_for_another() -> None:
    asked = anyio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with origin(slow, answering(FINE)) as there:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(there.ask)
            await asked.wait()
            tasks.cancel_scope.cancel()
        assert (await there.ask()).body == b"fine"
        assert len(there.connections) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"nonsense\r\n\r\n", httptools.HttpParserError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine", ConnectionError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * (MAX_HEAD_BYTES + 1) + b"\r\n\r\n", httptools.HttpParserError),
        (b"", ConnectionError),
    ],
)
async def test_broken_response_is_an_error(answer: bytes, error: type[Exception]) -> None:
    async with origin(answering(answer), answering(FINE)) as there:
        with pytest.raises(error):
            await there.ask()
        assert (await there.ask()).body == b"fine"


async def test_two_responses_to_one_request_end_the_connection() -> None:
    async with origin(answering(FINE + FINE), answering(FINE)) as there:
        assert (await there.ask()).body == b"fine"
        assert (await there.ask()).body == b"fine"
        assert len(there.connections) == 2


async def test_connection_idle_for_15_s_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with origin(answering(FINE)) as there:
        await there.ask()
        now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + 2 * MAX_IDLE_S, raising=False)
        await there.ask()
        assert len(there.connections) == 2


async def test_request_is_not_sent_where_nobody_listens() -> None:
    async with origin(answering(FINE)) as there:
        place = there.transport.origin
    with pytest.raises(NotSent):
        await HttpTransport(place, max_connections=1, connect_s=LONG_S, queue_s=LONG_S).request(
            "POST", QUESTION, LONG_S
        )


@pytest.mark.parametrize("limits", [{"timeout_s": 0.01}, {"queue_s": 0.01}])
async def test_request_that_waits_too_long_for_a_connection_is_not_sent(limits: dict[str, float]) -> None:
    asked = anyio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with origin(slow, answering(FINE), most=1, queue_s=limits.get("queue_s", LONG_S)) as there:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(there.ask)
            await asked.wait()
            with pytest.raises(NotSent, match="no connection became free"):
                await there.ask(timeout_s=limits.get("timeout_s", LONG_S))
            tasks.cancel_scope.cancel()
        assert (await there.ask()).body == b"fine"


async def test_closed_transport_opens_new_connections() -> None:
    async with origin(answering(FINE)) as there:
        await there.ask()
        await there.transport.close()
        assert (await there.ask()).body == b"fine"
        assert len(there.connections) == 2
