"""Calls within the process keep the promises of calls over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.exec import MACHINE_TERMINAL, Exited, Input, InputEnd, Output, TerminalRequest
from hawker.api.contract.image import IMPORT_IMAGE, PULL_IMAGE, PullRequest
from hawker.api.contract.machine import DELETE_METADATA, GET_MACHINE, LIST_MACHINES, MachineParams, MetadataKeyParams
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.api.routes import ROUTES
from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded, NotFound, Unavailable
from tests.api.samples import sample
from tests.api.serving import Fake, hang

pytestmark = pytest.mark.anyio
PARAMS = MachineParams(app_name="a", machine_id="m")
REQUEST = TerminalRequest(command=("cat",))


def _caller(handlers: Handlers) -> Caller:
    return InProcessCaller(handlers, ManualClock(), "broker")


async def test_a_call_reaches_the_handler_as_it_would_over_http() -> None:
    fake = Fake()
    caller = _caller(fake.handlers(ROUTES))
    assert await caller.call(GET_MACHINE, params=PARAMS, nonce="n", idempotency_key="k") == sample(GET_MACHINE.response)
    (call,) = fake.calls
    assert (call.params, call.nonce, call.idempotency_key, call.caller) == (PARAMS, "n", "k", "broker")
    assert len(call.request_id) == 26


async def test_a_field_left_out_is_empty() -> None:
    fake = Fake()
    caller = _caller(fake.handlers(ROUTES))
    await caller.call(STOP_MACHINE, params=PARAMS)
    await caller.call(LIST_MACHINES, params=AppParams(app_name="a"))
    await caller.call(DELETE_METADATA, params=MetadataKeyParams(app_name="a", machine_id="m", key="k"))
    assert [call.body for call in fake.calls] == [STOP_MACHINE.body(), None, None]
    assert fake.calls[1].query == LIST_MACHINES.query()


async def test_the_handlers_own_error_is_raised() -> None:
    error = NotFound("machine not found")
    with pytest.raises(NotFound) as caught:
        await _caller(Fake(error=error).handlers(ROUTES)).call(GET_MACHINE, params=PARAMS)
    assert caught.value is error


async def test_a_call_has_a_deadline() -> None:
    handlers = Handlers()
    handlers.on(GET_MACHINE, lambda call: hang())
    with pytest.raises(DeadlineExceeded):
        await _caller(handlers).call(GET_MACHINE, params=PARAMS, timeout_s=0.01)


async def test_leaving_a_stream_ends_it() -> None:
    ended = []

    async def items() -> AsyncIterator[Any]:
        try:
            while True:
                yield sample(PULL_IMAGE.response)
        finally:
            ended.append(True)

    async def pull(call: Call[Any, Any, Any]) -> AsyncIterator[Any]:
        return items()

    handlers = Handlers()
    handlers.stream(PULL_IMAGE, pull)
    async with _caller(handlers).stream(PULL_IMAGE, body=PullRequest(reference="a")) as events:
        assert await anext(events) == sample(PULL_IMAGE.response)
    assert ended == [True]


async def test_an_upload_is_passed_on() -> None:
    async def data() -> AsyncIterator[bytes]:
        yield b"abc"

    fake = Fake()
    assert await _caller(fake.handlers(ROUTES)).upload(IMPORT_IMAGE, data()) == sample(IMPORT_IMAGE.response)
    assert fake.heard == [b"abc"]


def _terminal(error: Exception | None = None) -> Handlers:
    async def run(call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        while isinstance(message := await channel.receive(), Input):
            await channel.send(Output(stream=1, data=message.data))
        if error is not None:
            raise error
        await channel.send(Exited(exit_code=0, signal=0))

    handlers = Handlers()
    handlers.socket(MACHINE_TERMINAL, run)
    return handlers


async def test_a_conversation_goes_both_ways_and_ends() -> None:
    async with _caller(_terminal()).socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await channel.send(Input(data=b"x"))
        assert await channel.receive() == Output(stream=1, data=b"x")
        await channel.send(InputEnd())
        assert await channel.receive() == Exited(exit_code=0, signal=0)
        assert await channel.receive() is None
        with pytest.raises(Unavailable):
            await channel.send(InputEnd())


async def test_an_error_ends_a_conversation_where_it_is_received() -> None:
    async with _caller(_terminal(NotFound("gone"))).socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await channel.send(InputEnd())
        with pytest.raises(NotFound, match="gone"):
            await channel.receive()


async def test_leaving_a_conversation_ends_its_handler() -> None:
    ended = anyio.Event()

    async def run(call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        try:
            await channel.receive()
        finally:
            ended.set()

    handlers = Handlers()
    handlers.socket(MACHINE_TERMINAL, run)
    async with _caller(handlers).socket(MACHINE_TERMINAL, REQUEST, params=PARAMS):
        await anyio.lowlevel.checkpoint()
    assert ended.is_set()
