"""A connected socket in the event loop, without a task and without waiting.

Unlike the loop's own transports it goes on reading when writing fails: the last words of a pilot that has just ended,
how its machine did, are in the socket when a write to it breaks.
"""

import asyncio
import socket
from collections.abc import Callable

_READ_MAX = 64 << 10


class ByteStream:
    """`on_data` gets what arrives; `on_end` is called once, when nothing more will come and we did not close."""

    def __init__(self, endpoint: socket.socket, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._socket = endpoint
        self._on_data = on_data
        self._on_end = on_end
        self._unsent = bytearray()
        self._mute = False
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(endpoint, self._read)

    def write(self, data: bytes) -> None:
        """Kept until the other end takes it; what is owed to us is bounded, so what we hold is too."""
        if not (self._mute or self._closing):
            self._unsent += data
            self._flush()

    def close(self) -> None:
        """Stop reading. What was written is still delivered."""
        if not self._closing:
            self._closing = True
            self._loop.remove_reader(self._socket)
            self._flush()

    def abort(self) -> None:
        self._unsent.clear()
        self.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self.abort()
            self._on_end()

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
            self._socket.close()
