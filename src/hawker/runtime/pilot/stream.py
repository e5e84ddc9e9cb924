"""A connected socket in the event loop, without a task and without waiting.

Unlike the loop's own transports it goes on reading when writing fails: the last words of a pilot that has just ended,
how its machine did, are in the socket when a write to it breaks.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

OnData = Callable[[bytes], None]
OnEnd = Callable[[str], None]  # why: for people

GONE = "the machine's pilot has gone"
LINGER_S = 5.0
_READ_MAX = 64 << 10


class Stream(Protocol):
    """What carries frames. Its maker is told what arrives, and once, unless it closes first, that nothing more will."""

    def write(self, data: bytes) -> None:
        """Kept until the other end takes it; what is owed to us is bounded, so what we hold is too."""

    def close(self) -> None:
        """Stop reading. What was written is still delivered."""

    def abort(self) -> None:
        """Close at once."""


OpenStream = Callable[[OnData, OnEnd], Stream]


class ByteStream:
    """Keeps `Stream`. With `on_closed`, which is called when all is over, closing waits for the other end to close too,
    for up to `LINGER_S`: a VMM drops what it has not read of a client that is gone."""

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
