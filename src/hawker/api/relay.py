"""A byte stream and a conversation about a port, joined: the node has the machine's end, the command line its user's.

An end sends at most `WINDOW` bytes that the other one has not passed on yet. So what is kept is bounded at each end,
and a reader that stands still stops one direction only: the conversation itself goes on, with its signs of life.
"""

import socket
import struct
from contextlib import suppress
from typing import Protocol

import anyio
from anyio.abc import ByteStream, SocketAttribute

from hawker.api.contract.port import FromClient, FromPort, PortData, PortEnd, PortTaken
from hawker.errors import BadRequest, Unavailable, one_error

WINDOW = 256 * 1024
_LAST_WORDS_S = 60.0
_LINGER_NOTHING = struct.pack("ii", 1, 0)


class PortChannel(Protocol):
    """Either end of the conversation."""

    async def send(self, message: FromClient) -> None: ...

    async def receive(self) -> FromPort | FromClient | None: ...


async def relay(channel: PortChannel, stream: ByteStream) -> None:
    """Until both directions have ended; a stream whose other end was cut off is reset. Raises the error that the other
    end told, and `BadRequest` when it does not keep to the window."""
    relayed = _Relay(channel, stream)
    try:
        with one_error():
            await relayed.run()
    finally:
        if not relayed.whole:
            cut_off(stream)


def cut_off(stream: ByteStream) -> None:
    """Closed after this, it is reset: who reads it sees that something is missing. Only sockets can tell."""
    connection = stream.extra(SocketAttribute.raw_socket, None)
    if connection is not None:
        with suppress(OSError):  # it has ended already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)


class _Relay:
    def __init__(self, channel: PortChannel, stream: ByteStream) -> None:
        self._channel, self._stream = channel, stream
        self._tasks = anyio.create_task_group()
        self._under_way = 0  # bytes that were sent and not taken yet
        self._room = anyio.Event()
        self._kept = bytearray()  # what came and was not passed on yet
        self._ended = False  # the other end has said all
        self._came = anyio.Event()
        self._sent_all = self._passed_all = False

    @property
    def whole(self) -> bool:
        return self._sent_all and self._passed_all

    async def run(self) -> None:
        async with self._tasks:
            for each in (self._send_what_is_read, self._pass_on, self._hear):
                self._tasks.start_soon(each)

    def _stop(self) -> None:
        self._tasks.cancel_scope.cancel()

    async def _send_what_is_read(self) -> None:
        try:
            async for data in self._stream:
                while self._under_way + len(data) > WINDOW:
                    self._room = anyio.Event()
                    await self._room.wait()
                self._under_way += len(data)
                await self._channel.send(PortData(data=data))
            await self._channel.send(PortEnd())
        except Unavailable:
            return  # `_hear` learns why
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self._stop()
            return
        self._sent_all = True
        if self.whole:
            self._stop()

    async def _pass_on(self) -> None:
        try:
            while self._kept or not self._ended:
                if not self._kept:
                    self._came = anyio.Event()
                    await self._came.wait()
                    continue
                data, self._kept = bytes(self._kept), bytearray()
                await self._stream.send(data)
                with suppress(Unavailable):
                    await self._channel.send(PortTaken(count=len(data)))
            await self._stream.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self._stop()
            return
        self._passed_all = True
        if self.whole:
            self._stop()

    async def _hear(self) -> None:
        """Until the other end has gone. If all was said, what came last is passed on still."""
        while (message := await self._channel.receive()) is not None:
            match message:
                case PortData() if not self._ended:
                    if len(self._kept) + len(message.data) > WINDOW:
                        raise BadRequest("more data than the window of this connection has room for")
                    self._kept += message.data
                case PortEnd():
                    self._ended = True
                case PortTaken():
                    self._under_way = max(0, self._under_way - message.count)
                    self._room.set()
                case _:
                    raise BadRequest("a message that has no place in this connection")
            self._came.set()
        if not (self._ended and self._sent_all):
            self._stop()
        self._tasks.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S
