"""One connection to a pilot: frames out, frames in, sorted by channel. Made for one conversation, then closed.

It needs no task: what arrives is parsed in the event loop's callback and given to the channel's receiver there. What a
receiver holds is bounded; a pilot that sends more is cut off.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

import anyio

from hawker.errors import Unavailable
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import Frame, FrameParser, MalformedPilotFrame

OnData = Callable[[bytes], None]
OnEnd = Callable[[str], None]  # why: for people

GONE = "contact with the machine was lost"
LINGER_S = 5.0
_READ_MAX = 64 << 10
PATIENCE = 1024  # frames that say nothing new, before a pilot is cut off
_HELD_MAX = 1024  # frames; more than any answer has
_HELD_BYTES_MAX = 2 * frames.OUT_WINDOW


class FrameStream(Protocol):
    """What carries frames. Its maker is told what arrives, and once, unless it closes first, that nothing more will."""

    def write(self, data: bytes) -> None:
        """Kept until the other end takes it; what is owed to us is bounded, so what we hold is too."""

    def close(self) -> None:
        """Stop reading. What was written is still delivered."""

    def abort(self) -> None:
        """Close at once."""


OpenStream = Callable[[OnData, OnEnd], FrameStream]


class ByteStream:
    """Keeps `FrameStream` over a connected socket in the event loop, without a task and without waiting. Unlike the
    loop's own transports it goes on reading when writing fails: the last words of a pilot that has just ended, how its
    machine did, are in the socket when a write to it breaks. With `on_closed`, which is called when all is over,
    closing waits for the other end to close too, for up to `LINGER_S`: a VMM drops what it has not read of a client
    that is gone."""

    def __init__(
        self, endpoint: socket.socket, on_data: OnData, on_end: OnEnd, *, on_closed: Callable[[], None] | None = None
    ) -> None:
        self._socket = endpoint
        self._on_data = on_data
        self._on_end = on_end
        self._on_closed = on_closed
        self._unsent = bytearray()
        self._mute = False
        self._closing = False
        self._closed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(endpoint, self._read)

    def write(self, data: bytes) -> None:
        if not (self._mute or self._closing):
            self._unsent += data
            self._flush()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._on_closed is None:
            self._loop.remove_reader(self._socket)
        else:
            self._deadline = self._loop.call_later(LINGER_S, self._finish)
        self._flush()

    def abort(self) -> None:
        self._closing = True
        self._finish()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            was_open = not self._closing
            self.abort()
            if was_open:
                self._on_end(GONE)
        elif not self._closing:
            self._on_data(data)

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._socket, self._flush)
            return
        except OSError:
            self._mute = True
            self._unsent.clear()
        self._loop.remove_writer(self._socket)
        if self._closing:
            self._take_leave()

    def _take_leave(self) -> None:
        if self._on_closed is None or self._mute:
            self._finish()
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _finish(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._unsent.clear()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._on_closed is not None:
            self._on_closed()


class Receiver(Protocol):
    """The end of a channel. Called in the event loop; `receive` may raise `MalformedPilotFrame`."""

    def receive(self, frame: Frame) -> None: ...

    def lose(self, why: str) -> None:
        """The connection has ended; nothing more will come."""


class Inbox:
    """The receiver for conversations that ask and wait: frames that nobody has taken yet."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._change = anyio.Event()
        self._lost: str | None = None

    def receive(self, frame: Frame) -> None:
        self._bytes += len(frame.payload)
        if len(self._frames) >= _HELD_MAX or self._bytes > _HELD_BYTES_MAX:
            raise MalformedPilotFrame("more than was asked for")
        self._frames.append(frame)
        self._wake()

    def lose(self, why: str) -> None:
        self._lost = why
        self._wake()

    async def take(self) -> Frame:
        """Raises `Unavailable` when the connection has ended and nothing is left to take."""
        while not self._frames:
            if self._lost is not None:
                raise Unavailable(self._lost)
            await self._change.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame.payload)
        return frame

    def _wake(self) -> None:
        self._change.set()
        self._change = anyio.Event()


class Connection:
    """Use `async with channel.connect(run)`."""

    def __init__(self, open_stream: OpenStream) -> None:
        self._parser = FrameParser()
        self._machine = Inbox()
        self._receivers: dict[int, Receiver] = {0: self._machine}
        self._lost: str | None = None
        self._passed_over = 0
        self.version = frames.OLDEST_VERSION  # that both speak, once `hello` has been heard
        self._stream = open_stream(self._arrived, self._lose)
        self.send(messages.hello())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """What was sent is still delivered."""
        self._stream.close()

    def send(self, data: bytes) -> None:
        self._stream.write(data)

    async def take(self) -> Frame:
        """The next frame about the machine itself."""
        return await self._machine.take()

    def open_channel(self, receiver: Receiver) -> int:
        channel = max(self._receivers) + 1
        self._receivers[channel] = receiver
        if self._lost is not None:
            receiver.lose(self._lost)
        return channel

    async def hello(self) -> messages.PilotHello:
        """The pilot's first frame. Call it once, before any other `take`. Raises `Unavailable`."""
        try:
            hello = messages.read_hello(await self.take())
        except MalformedPilotFrame as broken:
            raise Unavailable(f"the machine answered what makes no sense: {broken}") from broken
        self.version = min(hello.version, frames.VERSION)
        return hello

    def _arrived(self, data: bytes) -> None:
        try:
            for frame in self._parser.feed(data):
                receiver = self._receivers.get(frame.channel)
                if receiver is not None and frame.kind in frames.KINDS:
                    receiver.receive(frame)
                else:
                    self._pass_over()
        except MalformedPilotFrame as broken:
            self._lose(f"the machine answered what makes no sense: {broken}")
            self._stream.abort()

    def _pass_over(self) -> None:
        """What a newer pilot may say, and who asked has stopped listening; but not for ever."""
        self._passed_over += 1
        if self._passed_over > PATIENCE:
            raise MalformedPilotFrame("it says too much that nobody asked for")

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        for receiver in self._receivers.values():
            receiver.lose(self._lost)
