"""A command beside the workload, as its client holds it: the pilot's exec channel with credit in both directions."""

from collections import deque
from collections.abc import AsyncIterator, Callable

import anyio

from hawker.errors import Unavailable, WrongState
from hawker.runtime.driver import Exit
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.connection import PATIENCE, Connection
from hawker.runtime.pilot.frames import Frame, FrameKind, MalformedPilotFrame, PayloadReader

_INPUT_PART = 16 << 10
_TYPED_AT_END = 1  # byte: the end of a terminal's input, for which pilots up to version 3 give credit too


class PilotSession:
    """Keeps `ExecSession` and `Attachment`, and owns its connection. `wait` drops the output that nobody reads, so that
    it can end. `request` makes the frame that begins it, on its channel."""

    def __init__(self, connection: Connection, request: Callable[[int], bytes]) -> None:
        self._connection = connection
        self._held: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self._credit = frames.IN_WINDOW
        self._exit: Exit | None = None
        self._position: int | None = None
        self._refused: str | None = None
        self._input_ended = False
        self._lost: str | None = None
        self._change = anyio.Event()
        self._readers = 0
        self._idle_frames = 0
        self._channel = connection.open_channel(self)
        connection.send(request(self._channel))

    # --- the caller's side

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        self._readers += 1
        try:
            while (piece := await self._next()) is not None:
                yield piece
        finally:
            self._readers -= 1
            self._wake()

    async def wait(self) -> Exit:
        """How the command ended. Raises `Unavailable` when contact was lost before that."""
        while not self._over:
            if self._held and not self._readers:
                await self._next()
            else:
                await self._change.wait()
        if self._exit is None:
            raise Unavailable(self._lost or "contact with the machine was lost")
        return self._exit

    async def send(self, data: bytes) -> None:
        """Waits while the command reads more slowly than we send. Input past its end is dropped."""
        at = 0
        while at < len(data) and not self._over:
            if self._credit == 0:
                await self._change.wait()
                continue
            part = data[at : at + min(_INPUT_PART, self._credit)]
            self._credit -= len(part)
            at += len(part)
            self._send(FrameKind.STDIN, part)

    async def position(self) -> int:
        """See `Attachment.position`."""
        while self._position is None and not self._over:
            await self._change.wait()
        if self._position is not None:
            return self._position
        if self._refused is not None:
            raise WrongState(f"cannot attach to the machine's process: {self._refused}")
        if self._exit is not None:
            raise WrongState("the machine's process has ended")
        raise Unavailable(self._lost or "contact with the machine was lost")

    async def send_eof(self) -> None:
        self._input_ended = True
        self._send(FrameKind.STDIN_END)

    async def resize(self, rows: int, cols: int) -> None:
        self._send(FrameKind.RESIZE, frames.number(rows, 2) + frames.number(cols, 2))

    async def signal(self, signal: int) -> None:
        self._send(FrameKind.SIGNAL, frames.number(signal, 1))

    async def close(self) -> None:
        self._connection.close()

    # --- the connection's side

    def receive(self, frame: Frame) -> None:
        reader = PayloadReader(frame.payload)
        match frame.kind:
            case FrameKind.STDOUT | FrameKind.STDERR if frame.payload:
                self._hold(1 if frame.kind == FrameKind.STDOUT else 2, frame.payload)
            case FrameKind.CREDIT:
                self._take_credit(reader.number(4))
            case FrameKind.EXIT:
                self._exit = messages.read_ending(reader)
                self._connection.close()
            case FrameKind.REFUSED:
                self._lost = self._refused = reader.words()
            case FrameKind.ATTACHED if self._position is None:
                self._position = reader.number(8)
            case _:
                self._bear()
        self._wake()

    def lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._wake()

    # --- between them

    @property
    def _over(self) -> bool:
        return self._exit is not None or self._lost is not None

    async def _next(self) -> tuple[int, bytes] | None:
        """The next piece of output, with its credit given back; None at the end."""
        while not self._held:
            if self._over:
                return None
            await self._change.wait()
        stream, data = self._held.popleft()
        self._held_bytes -= len(data)
        self._send(FrameKind.CREDIT, frames.number(len(data), 4))
        return stream, data

    def _hold(self, stream: int, data: bytes) -> None:
        self._held_bytes += len(data)
        if self._held_bytes > frames.OUT_WINDOW:
            raise MalformedPilotFrame("more output than was asked for")
        self._held.append((stream, data))

    def _take_credit(self, given: int) -> None:
        most = frames.IN_WINDOW - self._credit
        if not 0 < given <= most + (_TYPED_AT_END if self._input_ended else 0):
            raise MalformedPilotFrame("it took more input than there was")
        self._credit += min(given, most)

    def _bear(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > PATIENCE:
            raise MalformedPilotFrame("it says too much that means nothing")

    def _send(self, kind: FrameKind, payload: bytes = b"") -> None:
        if not self._over:
            self._connection.send(frames.encode(kind, self._channel, payload))

    def _wake(self) -> None:
        self._change.set()
        self._change = anyio.Event()
