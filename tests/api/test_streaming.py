"""Calls that last: streams of lines, uploads and sockets."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from aiohttp import web
from anyio.lowlevel import checkpoint

from hawker.api.client import Client
from hawker.api.contract.app import LIST_APPS
from hawker.api.contract.exec import MACHINE_TERMINAL, Exited, Input, Output, TerminalRequest
from hawker.api.contract.image import IMPORT_IMAGE, PULL_IMAGE, ImportQuery, PullRequest
from hawker.api.contract.machine import MachineParams
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.listener import bind, url_of
from hawker.api.route import Call
from hawker.api.routes import ROUTES
from hawker.errors import Unauthorized, Unavailable
from tests.api.samples import sample
from tests.api.serving import TOKEN, Fake, served
from tests.ports import free_port

pytestmark = pytest.mark.anyio
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Passing = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def foreign(answer: Answer) -> AsyncIterator[Client]:
    """A client of a server that is not ours."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = bind("127.0.0.1", 0)
    await web.SockSite(runner, listener).start()
    try:
        async with Client(url_of(listener), TOKEN) as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.fixture
def nobody() -> str:
    """A URL at which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


async def test_stream_and_socket_of_a_node_that_is_away_are_unavailable(nobody: str) -> None:
    async with Client(nobody, TOKEN) as client:
        with pytest.raises(
            Unavailable, match=rf"cannot reach {nobody}: is the node running\? start one with `hawker up`"
        ):
            async with client.stream(PULL_IMAGE, body=PullRequest(reference="a")):
                pytest.fail("it opened")
        with pytest.raises(Unavailable):
            async with client.socket(
                MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=MachineParams(app_name="a", machine_id="m")
            ):
                pytest.fail("it opened")


async def test_stream_lines_come_whole_however_they_are_cut_and_empty_ones_are_nothing() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'\n{"stage":"reso', b'lving"}\n\n{"stage":', b'"done"}\n{"stage":"cut off'):
            await response.write(piece)
        return response

    async with foreign(answer) as client, client.stream(PULL_IMAGE, body=PullRequest(reference="a")) as events:
        assert [event.stage async for event in events] == ["resolving", "done"]


async def test_error_of_the_callers_own_inside_a_stream_stays_what_it_is() -> None:
    async with served(Fake().handlers(ROUTES)) as node:
        with pytest.raises(BrokenPipeError):
            async with node.client.stream(PULL_IMAGE, body=PullRequest(reference="a")):
                raise BrokenPipeError("the caller's own")


async def test_upload_that_is_refused_is_not_sent() -> None:
    sent = []

    async def data() -> AsyncIterator[bytes]:
        sent.append(True)
        yield b"x"

    async with served(Fake(error=Unauthorized("no")).handlers(ROUTES)) as node:
        with pytest.raises(Unauthorized):
            await node.client.upload(IMPORT_IMAGE, data(), query=ImportQuery(reference="a"))
    assert not sent


async def test_large_upload_arrives_whole() -> None:
    async def data() -> AsyncIterator[bytes]:
        for number in range(100):
            yield bytes([number]) * 100_000

    fake = Fake()
    async with served(fake.handlers(ROUTES)) as node:
        await node.client.upload(IMPORT_IMAGE, data())
    assert fake.heard == [b"".join([bytes([number]) * 100_000 for number in range(100)])]


async def test_client_makes_every_kind_of_call() -> None:
    async def data() -> AsyncIterator[bytes]:
        yield b"bytes"

    fake = Fake()
    machine = MachineParams(app_name="a", machine_id="m")
    async with served(fake.handlers(ROUTES)) as node, Client(node.url, TOKEN) as caller:
        await caller.call(LIST_APPS)
        async with caller.stream(PULL_IMAGE, body=PullRequest(reference="a")) as events:
            assert [event async for event in events]
        await caller.upload(IMPORT_IMAGE, data(), query=ImportQuery(reference="a"))
        async with caller.socket(MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=machine) as channel:
            await channel.send(sample(MACHINE_TERMINAL.up))
            assert await channel.receive() is not None
    assert [call.caller for call in fake.calls] == ["alice"] * 4


MACHINE = MachineParams(app_name="a", machine_id="m")
DATA, MESSAGES = bytes(64 * 1024), 400
"""More than both kernels and both processes keep."""


@pytest.fixture
async def minutes(monkeypatch: pytest.MonkeyPatch) -> Passing:
    """Lets five minutes pass for all that waits in the event loop."""
    loop, passed = asyncio.get_running_loop(), 0.0
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + passed)

    async def pass_by() -> None:
        nonlocal passed
        for _ in range(60):
            passed += 5.0
            for _ in range(50):  # what is due happens, and is answered
                await checkpoint()

    return pass_by


def terminal(converse: Callable[[SocketChannel[Any, Any]], Awaitable[None]]) -> Handlers:
    async def handle(call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        await converse(channel)
        await channel.send(Exited(exit_code=0, signal=0))

    handlers = Handlers()
    handlers.socket(MACHINE_TERMINAL, handle)
    return handlers


async def test_conversation_waits_for_a_client_that_does_not_read(minutes: Passing) -> None:
    async def write(channel: SocketChannel[Any, Any]) -> None:
        for _ in range(MESSAGES):
            await channel.send(Output(stream=1, data=DATA))

    async with (
        served(terminal(write), [MACHINE_TERMINAL]) as node,
        node.client.socket(MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=MACHINE) as channel,
    ):
        assert isinstance(await channel.receive(), Output)
        await minutes()
        seen = 1
        while isinstance(message := await channel.receive(), Output):
            seen += 1
    assert isinstance(message, Exited) and seen == MESSAGES


async def test_conversation_waits_for_a_command_that_does_not_read(minutes: Passing) -> None:
    reads = anyio.Event()

    async def read(channel: SocketChannel[Any, Any]) -> None:
        await reads.wait()
        for _ in range(MESSAGES):
            assert isinstance(await channel.receive(), Input)

    async def write(channel: SocketChannel[Any, Any]) -> None:
        for _ in range(MESSAGES):
            await channel.send(Input(data=DATA))

    async def later() -> None:
        await minutes()
        reads.set()

    async with (
        served(terminal(read), [MACHINE_TERMINAL]) as node,
        node.client.socket(MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=MACHINE) as channel,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(write, channel)
        tasks.start_soon(later)
        assert isinstance(await channel.receive(), Exited)


async def test_conversation_with_a_node_that_says_nothing_for_a_minute_has_ended(
    minutes: Passing,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.receive()
        return socket

    async with (
        foreign(answer) as client,
        client.socket(MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=MACHINE) as channel,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(minutes)
        assert await channel.receive() is None


def test_command_without_a_stream_does_not_import_aiohttp() -> None:
    code = "import sys, hawker.cli.commands.machine.list; print('aiohttp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
