"""Streams and waits: what ends them, and what the client hears of it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest

from hawker.api.client import Client
from hawker.api.codec import encode_json
from hawker.api.contract.body import Failed
from hawker.api.contract.exec import (
    MACHINE_LOGS,
    MACHINE_TERMINAL,
    Exited,
    Input,
    InputEnd,
    Output,
    Resize,
    TerminalRequest,
)
from hawker.api.contract.machine import MachineParams, WaitAnswer
from hawker.api.contract.machine_operation import WAIT_MACHINE
from hawker.api.contract.node import LogChunk
from hawker.api.endpoints import KEEPALIVE_S, Setup, Shutdown, StreamEndpoint, typed_errors
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.reply import HttpReply
from hawker.api.request import incoming
from hawker.api.route import Call
from hawker.clock import ManualClock
from hawker.errors import Fault, HawkerError, NotFound, Unavailable
from hawker.log import Secret
from tests.api.samples import sample
from tests.api.serving import Served, hang, served
from tests.waiting import eventually


def test_an_error_of_the_family_passes_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    raised = NotFound("app not found")
    with pytest.raises(NotFound) as caught, typed_errors("01H"):
        raise raised
    assert caught.value is raised and not caplog.records


def test_any_other_error_is_logged_once_and_told_by_the_requests_id_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(Fault) as caught, typed_errors("01H"):
        raise ZeroDivisionError("secret")
    assert str(caught.value) == "internal error, request id 01H"
    (record,) = caplog.records
    assert record.getMessage() == "unexpected error" and record.exc_info and record.__dict__["request_id"] == "01H"


pytestmark = pytest.mark.anyio


async def test_a_stop_ends_what_runs_with_an_error_that_says_so() -> None:
    shutdown = Shutdown()
    begun = anyio.Event()

    async def call() -> None:
        with pytest.raises(Unavailable, match="the node is stopping"), shutdown.until_stop():
            begun.set()
            await anyio.sleep_forever()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await begun.wait()
            shutdown.stop()


async def test_a_call_that_begins_after_the_stop_ends_at_its_first_wait() -> None:
    shutdown = Shutdown()
    shutdown.stop()
    with pytest.raises(Unavailable), shutdown.until_stop():
        await anyio.lowlevel.checkpoint()


async def test_a_call_that_has_ended_is_forgotten() -> None:
    shutdown = Shutdown()
    with shutdown.until_stop():
        pass
    shutdown.stop()


async def test_a_cancel_from_outside_stays_a_cancel() -> None:
    shutdown = Shutdown()
    with anyio.CancelScope() as scope:
        scope.cancel()
        with shutdown.until_stop():
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


PARAMS = MachineParams(app_name="a", machine_id="m")


class Logs:
    """A stream of one item, after which it does as told."""

    def __init__(self, then: Exception | None = None) -> None:
        self._then = then
        self.ended = False

    async def open(self, call: Call[Any, Any, Any]) -> AsyncIterator[LogChunk]:
        return self._items()

    async def _items(self) -> AsyncIterator[LogChunk]:
        try:
            yield sample(LogChunk)
            if self._then is not None:
                raise self._then
            await anyio.sleep_forever()
        finally:
            self.ended = True

    def handlers(self) -> Handlers:
        handlers = Handlers()
        handlers.stream(MACHINE_LOGS, self.open)
        return handlers


@asynccontextmanager
async def following(logs: Logs) -> AsyncIterator[tuple[Served, AsyncIterator[LogChunk]]]:
    async with (
        served(logs.handlers(), [MACHINE_LOGS]) as node,
        node.client.stream(MACHINE_LOGS, params=PARAMS) as items,
    ):
        yield node, items


@pytest.mark.parametrize(
    ("raised", "told"),
    [(NotFound("machine not found"), NotFound), (ZeroDivisionError("secret"), Fault)],
)
async def test_an_error_in_a_stream_is_its_last_line(raised: Exception, told: type[HawkerError]) -> None:
    logs = Logs(then=raised)
    async with following(logs) as (_, items):
        assert await anext(items) == sample(LogChunk)
        with pytest.raises(told) as caught:
            await anext(items)
    assert "secret" not in str(caught.value) and logs.ended


async def test_a_stream_ends_when_its_client_goes() -> None:
    logs = Logs()
    async with served(logs.handlers(), [MACHINE_LOGS]) as node:
        async with node.client.stream(MACHINE_LOGS, params=PARAMS) as items:
            await anext(items)
            assert not logs.ended
        await eventually(lambda: logs.ended)


async def test_a_stream_ends_when_the_server_stops_and_says_so() -> None:
    logs = Logs()
    async with following(logs) as (node, items):
        await anext(items)
        node.server.stop()
        with pytest.raises(Unavailable, match="the node is stopping"):
            await anext(items)
    assert logs.ended


async def test_a_wait_ends_when_the_server_stops() -> None:
    begun = anyio.Event()

    async def wait(call: Call[Any, Any, Any]) -> WaitAnswer:
        begun.set()
        answer: WaitAnswer = await hang()
        return answer

    handlers = Handlers()
    handlers.on(WAIT_MACHINE, wait)
    async with served(handlers, [WAIT_MACHINE]) as node, anyio.create_task_group() as group:

        async def ask() -> None:
            with pytest.raises(Unavailable, match="the node is stopping"):
                await node.client.call(WAIT_MACHINE, params=PARAMS)

        group.start_soon(ask)
        await begun.wait()
        node.server.stop()


async def test_a_silent_stream_says_now_and_then_that_the_node_lives() -> None:
    clock, sent = ManualClock(), anyio.Event()

    async def send(message: Any) -> None:
        if message.get("body") == b"\n":
            sent.set()

    async def receive() -> Any:
        await sent.wait()
        return {"type": "http.disconnect"}

    endpoint = StreamEndpoint(MACHINE_LOGS, Setup(Logs().handlers(), Shutdown(), clock, 0))
    request = incoming({"query_string": b"", "headers": []}, {"app_name": "a", "machine_id": "m"}, receive, "01H")
    before = clock.monotonic()
    with anyio.fail_after(60):
        await endpoint(request, Everything("alice"), HttpReply(send, "01H"))
    assert clock.monotonic() - before >= KEEPALIVE_S


async def test_a_failed_line_is_as_documented() -> None:
    logs = Logs(then=NotFound("machine not found"))
    path = "/hawker/v1/apps/a/machines/m/logs"
    async with served(logs.handlers(), [MACHINE_LOGS]) as node, node.http.get(path) as response:
        assert response.content_type == "application/x-ndjson"
        first, last = (await response.read()).splitlines()
    assert first == encode_json(sample(LogChunk))
    assert last == b'{"type":"failed","http_status":404,"problem":{"error":"machine not found","status":"unknown"}}'
    assert Failed.__struct_config__.tag == "failed"


REQUEST = TerminalRequest(command=("cat",), tty=True, rows=50)
PATH = "/hawker/v1/apps/a/machines/m/terminal"


class Cat:
    """Says what it hears, exits when the input ends; raises what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.calls: list[Call[Any, Any, Any]] = []
        self.sizes: list[tuple[int, int]] = []
        self.ended = False

    async def run(self, call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        self.calls.append(call)
        try:
            while (message := await channel.receive()) is not None:
                match message:
                    case Input(data=data):
                        await channel.send(Output(stream=1, data=data))
                    case Resize(rows=rows, cols=cols):
                        self.sizes.append((rows, cols))
                    case InputEnd():
                        await self._end(channel)
        finally:
            self.ended = True

    async def _end(self, channel: SocketChannel[Any, Any]) -> None:
        if self._error is not None:
            raise self._error
        await channel.send(Exited(exit_code=3, signal=0))


@asynccontextmanager
async def serving(cat: Cat) -> AsyncIterator[Served]:
    handlers = Handlers()
    handlers.socket(MACHINE_TERMINAL, cat.run)
    async with served(handlers, [MACHINE_TERMINAL]) as node:
        yield node


async def test_messages_go_both_ways_and_bytes_stay_bytes() -> None:
    cat = Cat()
    async with serving(cat) as node, node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await channel.send(Resize(rows=10, cols=20))
        await channel.send(Input(data=bytes(range(256))))
        assert await channel.receive() == Output(stream=1, data=bytes(range(256)))
        await channel.send(InputEnd())
        assert await channel.receive() == Exited(exit_code=3, signal=0)
    (call,) = cat.calls
    assert (call.body, call.params, call.caller) == (REQUEST, PARAMS, "alice") and cat.sizes == [(10, 20)]


@pytest.mark.parametrize(
    ("raised", "told"),
    [(NotFound("machine not found"), NotFound), (ZeroDivisionError("secret"), Fault)],
)
async def test_an_error_is_the_last_message(raised: Exception, told: type[HawkerError]) -> None:
    async with serving(Cat(raised)) as node, node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await channel.send(InputEnd())
        with pytest.raises(told) as caught:
            await channel.receive()
        assert await channel.receive() is None and "secret" not in str(caught.value)


async def test_a_message_that_cannot_be_read_ends_the_conversation() -> None:
    async with serving(Cat()) as node, node.http.ws_connect(PATH) as socket:
        await socket.send_str('{"command":["cat"]}')
        await socket.send_str('{"type":"nonsense"}')
        assert '"http_status":422' in (await socket.receive()).data


@pytest.mark.parametrize(("opening", "status"), [("{", 400), ('{"command":7}', 422), ("{}", 422)])
async def test_a_bad_opening_is_answered(opening: str, status: int) -> None:
    cat = Cat()
    async with serving(cat) as node, node.http.ws_connect(PATH) as socket:
        await socket.send_str(opening)
        assert f'"http_status":{status}' in (await socket.receive()).data
    assert not cat.calls


async def test_a_handler_ends_when_its_client_goes() -> None:
    cat = Cat()
    async with serving(cat) as node:
        async with node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
            await channel.send(Input(data=b"x"))
            await channel.receive()
        await eventually(lambda: cat.ended)


async def test_a_conversation_ends_when_the_server_stops() -> None:
    cat = Cat()
    async with serving(cat) as node, node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await eventually(lambda: cat.calls)
        node.server.stop()
        with anyio.fail_after(60), pytest.raises(Unavailable, match="the node is stopping"):
            await channel.receive()


@pytest.mark.parametrize(("path", "token", "status"), [(PATH, "stolen", 401), ("/nothing", "token", 404)])
async def test_a_handshake_is_refused_with_a_typed_body(path: str, token: str, status: int) -> None:
    cat = Cat()
    headers = {"Authorization": f"Bearer {token}"}
    async with serving(cat) as node, aiohttp.ClientSession(node.url, headers=headers) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(path)
    assert caught.value.status == status and not cat.calls


async def test_a_refused_handshake_is_the_familys_error_to_our_client() -> None:
    async with serving(Cat()) as node, Client(node.url, Secret("stolen")) as stranger:
        with pytest.raises(HawkerError) as caught:
            async with stranger.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS):
                pytest.fail("it opened")
    assert caught.value.status == 401
    assert "HTTP status" not in str(caught.value), "it has the node's own words"
