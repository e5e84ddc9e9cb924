"""Streams and waits: what ends them, and what the client hears of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hawker.api.codec import encode_json
from hawker.api.contract.body import Failed
from hawker.api.contract.exec import MACHINE_LOGS
from hawker.api.contract.machine import MachineParams, WaitAnswer
from hawker.api.contract.machine_operation import WAIT_MACHINE
from hawker.api.contract.node import LogChunk
from hawker.api.endpoints import KEEPALIVE_S, Setup, StreamEndpoint
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.reply import HttpReply
from hawker.api.request import incoming
from hawker.api.route import Call
from hawker.api.shutdown import Shutdown
from hawker.clock import ManualClock
from hawker.errors import Fault, HawkerError, NotFound, Unavailable
from tests.api.samples import sample
from tests.api.serving import Served, hang, served
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
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
