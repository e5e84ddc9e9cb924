"""TCP at both ends of a real conversation: what goes in at the client's end reaches the port, and back."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.port import (
    MACHINE_PORT,
    FromClient,
    PortData,
    PortEnd,
    PortOpened,
    PortRequest,
    PortTaken,
)
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.relay import WINDOW, relay
from hawker.api.route import Call
from hawker.errors import BadRequest, HawkerError
from tests.api.serving import served
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
PARAMS = MachineParams(app_name="a", machine_id="m")
Program = Callable[[SocketStream], Awaitable[None]]


@asynccontextmanager
async def listening(program: Program) -> AsyncIterator[int]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, program)
        yield int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def led_to(program: Program) -> AsyncIterator[SocketStream]:
    """A client's connection, by way of a client of the API and a node, to `program`."""
    async with listening(program) as port:

        async def dial(call: Call[Any, Any, PortRequest], channel: SocketChannel[Any, Any]) -> None:
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await channel.send(PortOpened(address="127.0.0.1"))
                await relay(channel, stream)

        handlers = Handlers()
        handlers.socket(MACHINE_PORT, dial)
        async with served(handlers, [MACHINE_PORT]) as node:

            async def carry(stream: SocketStream) -> None:
                async with stream, node.client.socket(MACHINE_PORT, PortRequest(port=port), params=PARAMS) as channel:
                    assert await channel.receive() == PortOpened(address="127.0.0.1")
                    await relay(channel, stream)

            async with listening(carry) as near, await anyio.connect_tcp("127.0.0.1", near) as stream:
                with anyio.fail_after(60):
                    yield stream


async def echo(stream: SocketStream) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


async def everything(stream: SocketStream) -> bytes:
    return b"".join([data async for data in stream])


async def test_a_relay_passes_any_bytes_and_the_end_of_each_direction() -> None:
    sent, got = os.urandom(3 << 20), bytearray()

    async def give(stream: SocketStream) -> None:
        await stream.send(sent)
        await stream.send_eof()

    async with led_to(echo) as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(give, stream)
        got += await everything(stream)
    assert bytes(got) == sent


async def test_a_direction_of_a_relay_goes_on_when_the_other_has_ended() -> None:
    async def answer_at_the_end(stream: SocketStream) -> None:
        async with stream:
            asked = await everything(stream)
            await stream.send(b"you said " + asked)

    async with led_to(answer_at_the_end) as stream:
        await stream.send(b"hello")
        await stream.send_eof()
        assert await everything(stream) == b"you said hello"


class Heap:
    """An end of a conversation, at which a test says what comes."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self._say, self._hear = anyio.create_memory_object_stream[Any](100)

    async def send(self, message: FromClient) -> None:
        self.sent.append(message)

    async def receive(self) -> Any:
        return await self._hear.receive()

    async def say(self, *messages: object) -> None:
        for message in messages:
            await self._say.send(message)

    @property
    def under_way(self) -> int:
        return sum(len(each.data) for each in self.sent if isinstance(each, PortData))


@asynccontextmanager
async def relayed(heap: Heap) -> AsyncIterator[tuple[SocketStream, list[HawkerError]]]:
    """A program's connection whose other end is joined with `heap`, and what that ended with."""
    errors: list[HawkerError] = []

    async def join(stream: SocketStream) -> None:
        async with stream:
            try:
                await relay(heap, stream)
            except HawkerError as error:
                errors.append(error)

    async with listening(join) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        with anyio.fail_after(60):
            yield stream, errors


async def test_a_relay_sends_no_more_than_its_window_until_the_other_end_has_taken_it() -> None:
    heap = Heap()
    async with relayed(heap) as (stream, _), anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, bytes(3 * WINDOW))
        await eventually(lambda: heap.under_way > WINDOW - 65536)
        assert heap.under_way <= WINDOW
        await heap.say(PortData(data=b"the other direction goes on"))
        assert await stream.receive() == b"the other direction goes on"
        while heap.under_way < 3 * WINDOW:
            before = heap.under_way
            await heap.say(PortTaken(count=65536))
            await eventually(lambda: heap.under_way > before)  # noqa: B023 - it is awaited here
        assert heap.under_way == 3 * WINDOW


async def test_a_relay_says_what_it_has_passed_on() -> None:
    heap = Heap()
    async with relayed(heap) as (stream, _):
        await heap.say(PortData(data=b"abc"), PortData(data=b"de"), PortEnd())
        assert await everything(stream) == b"abcde"
        await eventually(lambda: sum(each.count for each in heap.sent if isinstance(each, PortTaken)) == 5)


async def test_an_end_that_sends_more_than_the_window_is_refused_and_what_it_sent_is_not_kept() -> None:
    heap = Heap()
    async with relayed(heap) as (stream, errors):
        await heap.say(PortData(data=bytes(WINDOW + 1)))
        with pytest.raises(anyio.BrokenResourceError):
            await everything(stream)
        await eventually(lambda: errors)
    assert isinstance(errors[0], BadRequest)


async def test_a_relay_resets_one_end_when_the_other_is_reset() -> None:
    async def slam(stream: SocketStream) -> None:
        await stream.receive()
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await stream.aclose()

    async with led_to(slam) as stream:
        await stream.send(b"x")
        with pytest.raises(anyio.BrokenResourceError):
            await everything(stream)


async def test_a_relay_tells_the_port_that_its_client_has_gone() -> None:
    gone = anyio.Event()

    async def wait(stream: SocketStream) -> None:
        async with stream:
            try:
                await everything(stream)
            except anyio.BrokenResourceError:
                gone.set()

    async with led_to(wait) as stream:
        await stream.send(b"x")
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await stream.aclose()
        await gone.wait()
