"""Against servers that answer as they are told, whatever they are asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import httptools
import pytest

from hawker.api.kept import IDLE_S, MAX_HEAD_BYTES, Answer, Kept, Unsent, place_in

pytestmark = pytest.mark.anyio

Script: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUESTION = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nHawker-Version: v\r\n\r\nfine"
LONG_S = 60.0


@dataclass
class Town:
    kept: Kept
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    async def ask(self, method: str = "POST", timeout_s: float = LONG_S) -> Answer:
        return await self.kept.ask(method, QUESTION, timeout_s)


@asynccontextmanager
async def town(*scripts: Script, most: int = 0) -> AsyncIterator[Town]:
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

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = place_in(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert place is not None
    kept = Kept(place, most=most, connect_s=LONG_S, patience_s=LONG_S)
    try:
        yield Town(kept, connections)
    finally:
        await kept.close()
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
async def test_connections_are_kept(anyio_backend: object) -> None:
    async with town(answering(FINE)) as there:
        for _ in range(3):
            answer = await there.ask()
            assert (answer.status, answer.body, answer.headers["hawker-version"]) == (200, b"fine", "v")
        assert len(there.connections) == 1


async def test_as_many_at_once_as_may_be_and_the_others_in_turn() -> None:
    async with town(answering(FINE), most=2) as there:
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await there.ask())

        async with anyio.create_task_group() as tasks:
            for _ in range(7):
                tasks.start_soon(ask)
        assert len(answers) == 7 and len(there.connections) <= 2


async def test_who_gives_up_waiting_leaves_his_turn_to_the_next() -> None:
    async with town(answering(FINE), most=1) as there:
        answers: list[Answer] = []

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
async def test_every_form_of_an_answer_is_read(answer: bytes) -> None:
    async with town(answering(answer), answering(FINE)) as there:
        assert (await there.ask()).body == b"fine"
        assert (await there.ask("GET")).body == b"fine"


async def test_a_kept_connection_that_was_closed_is_replaced_for_calls_that_may_be_repeated() -> None:
    asked = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads a second question and answers nothing."""
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FINE)
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with town(once) as there:
        await there.ask()
        assert (await there.ask("GET")).body == b"fine"
        with pytest.raises(ConnectionError):
            await there.ask("POST")
        assert asked == 2 and len(there.connections) == 2


async def test_no_answer_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with town(silent, answering(FINE)) as there:
        with pytest.raises(TimeoutError):
            await there.ask("GET", timeout_s=0.01)
        assert (await there.ask()).body == b"fine"


async def test_an_answer_that_nobody_waits_for_any_more_is_not_taken_for_another() -> None:
    asked = anyio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with town(slow, answering(FINE)) as there:
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
async def test_a_broken_answer_is_an_error(answer: bytes, error: type[Exception]) -> None:
    async with town(answering(answer), answering(FINE)) as there:
        with pytest.raises(error):
            await there.ask()
        assert (await there.ask()).body == b"fine"


async def test_two_answers_to_one_question_end_the_connection() -> None:
    async with town(answering(FINE + FINE), answering(FINE)) as there:
        assert (await there.ask()).body == b"fine"
        assert (await there.ask()).body == b"fine"
        assert len(there.connections) == 2


async def test_what_nobody_needed_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(answering(FINE)) as there:
        await there.ask()
        now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + 2 * IDLE_S, raising=False)
        await there.ask()
        assert len(there.connections) == 2


async def test_nobody_there() -> None:
    async with town(answering(FINE)) as there:
        place = there.kept._place
    with pytest.raises(Unsent):
        await Kept(place, most=1, connect_s=LONG_S, patience_s=LONG_S).ask("POST", QUESTION, LONG_S)


@pytest.mark.parametrize("url", ["https://a", "http://u@a", "http://", "http://a:0", "http://a:x", "unix:/x"])
def test_what_needs_more_than_plain_http(url: str) -> None:
    assert place_in(url) is None
