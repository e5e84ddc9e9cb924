"""One connection to a pilot: frames out, frames in, sorted by channel. Made for one conversation, then closed.

It needs no task: what arrives is parsed in the event loop's callback and given to the channel's receiver there. What a
receiver holds is bounded; a pilot that sends more is cut off.
"""

from collections import deque
from typing import Protocol, Self

import anyio

from hawker.errors import Unavailable
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import Frame, FrameParser, Malformed
from hawker.runtime.pilot.stream import OpenStream

PATIENCE = 1024  # frames that say nothing new, before a pilot is cut off
_HELD_MAX = 1024  # frames; more than any answer has
_HELD_BYTES_MAX = 2 * frames.OUT_WINDOW


class Receiver(Protocol):
    """The end of a channel. Called in the event loop; `receive` may raise `Malformed`."""

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
            raise Malformed("more than the credit given")
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

    async def hello(self) -> messages.Hello:
        """The pilot's first frame. Call it once, before any other `take`."""
        try:
            hello = messages.read_hello(await self.take())
        except Malformed as broken:
            raise Unavailable(f"the pilot broke the protocol: {broken}") from broken
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
        except Malformed as broken:
            self._lose(f"the pilot broke the protocol: {broken}")
            self._stream.abort()

    def _pass_over(self) -> None:
        """What a newer pilot may say, and who asked has stopped listening; but not for ever."""
        self._passed_over += 1
        if self._passed_over > PATIENCE:
            raise Malformed("it says too much that nobody asked for")

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        for receiver in self._receivers.values():
            receiver.lose(self._lost)
