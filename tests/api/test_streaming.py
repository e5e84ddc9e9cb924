"""Calls that last: streams of lines, uploads and sockets."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hawker.api.client import Client
from hawker.api.contract.app import LIST_APPS
from hawker.api.contract.exec import MACHINE_TERMINAL, TerminalRequest
from hawker.api.contract.image import IMPORT_IMAGE, PULL_IMAGE, ImportQuery, PullRequest
from hawker.api.contract.machine import MachineParams
from hawker.api.listener import bind, url_of
from hawker.api.routes import ROUTES
from hawker.errors import Unauthorized, Unavailable
from tests.api.samples import sample
from tests.api.serving import TOKEN, Fake, served

pytestmark = pytest.mark.anyio
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
    with bind("127.0.0.1", 0) as listener:
        return url_of(listener)


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


def test_command_without_a_stream_does_not_import_aiohttp() -> None:
    code = "import sys, hawker.cli.commands.machine.list; print('aiohttp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
