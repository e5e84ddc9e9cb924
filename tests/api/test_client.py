"""What the client makes of a node that is away, slow, foreign or broken."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from aiohttp import web

from hawker.api.client import Client
from hawker.api.contract.app import LIST_APPS, AppList
from hawker.api.contract.exec import MACHINE_TERMINAL, TerminalRequest
from hawker.api.contract.image import IMPORT_IMAGE, PRUNE_IMAGES, PULL_IMAGE, ImportQuery, PullRequest
from hawker.api.contract.machine import MachineParams
from hawker.api.listener import bind, url_of
from hawker.api.routes import ROUTES
from hawker.errors import DeadlineExceeded, Fault, HawkerError, Unauthorized, Unavailable
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


async def test_a_node_that_is_away_is_unavailable_and_says_what_to_do(nobody: str) -> None:
    async with Client(nobody, TOKEN) as client:
        with pytest.raises(
            Unavailable, match=rf"cannot reach {nobody}: is the node running\? start one with `hawker up`"
        ):
            await client.call(LIST_APPS)
        with pytest.raises(Unavailable):
            async with client.stream(PULL_IMAGE, body=PullRequest(reference="a")):
                pytest.fail("it opened")
        with pytest.raises(Unavailable):
            async with client.socket(
                MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=MachineParams(app_name="a", machine_id="m")
            ):
                pytest.fail("it opened")


async def test_a_node_that_does_not_answer_in_time_is_given_up() -> None:
    async def answer(request: web.Request) -> web.Response:
        await anyio.sleep_forever()
        return web.Response()

    async with foreign(answer) as client:
        with pytest.raises(DeadlineExceeded, match="no answer from"):
            await client.call(LIST_APPS, timeout_s=0.05)


async def test_a_connection_that_breaks_before_the_answer_is_a_fault_because_nobody_knows() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with foreign(answer) as client:
        with pytest.raises(Fault, match="was lost"):
            await client.call(PRUNE_IMAGES)


@pytest.mark.parametrize(
    ("status", "text", "kind", "says"),
    [
        (200, "<html>", Fault, "answered in a way that this version does not know"),
        (200, '{"apps":7}', Fault, "answered in a way that this version does not know"),
        (502, "bad gateway", Fault, "HTTP status 502: bad gateway"),
        (302, "", HawkerError, "HTTP status 302: no text"),
        (401, '{"error":"who are you","status":"unknown"}', Unauthorized, "who are you"),
    ],
)
async def test_what_a_foreign_server_says_is_of_the_family(
    status: int, text: str, kind: type[HawkerError], says: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers={"Location": "http://127.0.0.1:1/"})

    async with foreign(answer) as client:
        with pytest.raises(kind, match=says):
            await client.call(LIST_APPS)


async def test_lines_come_whole_however_they_are_cut_and_empty_ones_are_nothing() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'\n{"stage":"reso', b'lving"}\n\n{"stage":', b'"done"}\n{"stage":"cut off'):
            await response.write(piece)
        return response

    async with foreign(answer) as client, client.stream(PULL_IMAGE, body=PullRequest(reference="a")) as events:
        assert [event.stage async for event in events] == ["resolving", "done"]


async def test_an_error_of_the_callers_own_inside_a_stream_stays_what_it_is() -> None:
    async with served(Fake().handlers(ROUTES)) as node:
        with pytest.raises(BrokenPipeError):
            async with node.client.stream(PULL_IMAGE, body=PullRequest(reference="a")):
                raise BrokenPipeError("the caller's own")


async def test_an_upload_that_is_refused_is_not_sent() -> None:
    sent = []

    async def data() -> AsyncIterator[bytes]:
        sent.append(True)
        yield b"x"

    async with served(Fake(error=Unauthorized("no")).handlers(ROUTES)) as node:
        with pytest.raises(Unauthorized):
            await node.client.upload(IMPORT_IMAGE, data(), query=ImportQuery(reference="a"))
    assert not sent


async def test_a_large_upload_arrives_whole() -> None:
    async def data() -> AsyncIterator[bytes]:
        for number in range(100):
            yield bytes([number]) * 100_000

    fake = Fake()
    async with served(fake.handlers(ROUTES)) as node:
        await node.client.upload(IMPORT_IMAGE, data())
    assert fake.heard == [b"".join([bytes([number]) * 100_000 for number in range(100)])]


async def test_calls_share_connections_and_the_token_is_sent_with_each() -> None:
    seen: list[tuple[Any, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.transport, request.headers["Authorization"]))
        return web.json_response({"total_apps": 0, "apps": []})

    async with foreign(answer) as client:
        assert [await client.call(LIST_APPS) for _ in range(2)] == [AppList(total_apps=0, apps=())] * 2
    assert len({transport for transport, _ in seen}) == 1
    assert {token for _, token in seen} == {f"Bearer {TOKEN.reveal()}"}


async def test_a_closed_client_opens_again() -> None:
    async with served(Fake().handlers(ROUTES)) as node:
        await node.client.call(LIST_APPS)
        await node.client.close()
        assert (await node.client.call(LIST_APPS)).total_apps == 1
