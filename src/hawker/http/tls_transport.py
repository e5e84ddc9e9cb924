"""An open TLS connection: what stands between a client's bytes and the protocol that serves them in plain.

As OpenSSL has it in memory, so its limits are ours: what a client sends is decrypted only while its reader reads, and a
client that has us answer its control messages for ever is ended. Half-close is kept both ways.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any

_READ_BYTES = 1 << 16
_MAX_CONTROL_BYTES = 64 * 1024
"""The most bytes that one connection sends, over its life, because TLS asked for them and not its protocol: some 2,000
changes of keys."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The transport of `inner`, and the protocol of `raw`, which has just ended its handshake."""

    def __init__(
        self,
        raw: asyncio.Transport,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        inner: asyncio.BaseProtocol,
    ) -> None:
        super().__init__()
        self._raw = raw
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._inner: Any = inner
        self._held = False
        self._paused = False
        self._ended = False  # the client has said its last
        self._said_last = False  # we have
        self._closing = False
        self._control_bytes = 0
        self._error: Exception | None = None

    def begin(self) -> None:
        """Begin to serve `inner`, also with the bytes that came with the end of the handshake."""
        self._inner.connection_made(self)
        self._take()

    # As the protocol of `raw`.

    def data_received(self, data: bytes) -> None:
        if not self._ended:
            self._incoming.write(data)
            self._take()

    def eof_received(self) -> bool:
        """Take the end of a client's bytes. A client that ends without a last word of TLS has ended, too: HTTP itself
        knows what is missing."""
        if not self._ended:
            self._end()
        return not self._closing

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._inner.connection_lost(error or self._error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # As the transport of `inner`.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` is that of this transport; all other information is of the connection below."""
        if name == "ssl_object":
            return self._tls
        return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._inner
        return protocol

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        if not self._paused and not self.is_closing():
            self._paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on in the next turn of the event loop, not inside this call: the call may come from a reader that is
        reading."""
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._read_on)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._said_last or self.is_closing():
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            self._fail(error)
            return
        if not self._held:
            self._raw.write(self._outgoing.read())

    def hold(self) -> None:
        """Hold back what is written from now on: `close` comes next, and sends it with the last word of TLS in one
        packet."""
        self._held = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """End this side of the connection. The client may still send, and is read."""
        if not self._said_last and not self.is_closing():
            self._say_last()
            self._raw.write_eof()

    def close(self) -> None:
        if not self._closing:
            self._say_last()
            self._closing = True
            self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._raw.abort()

    def _read_on(self) -> None:
        if self.is_closing() or self._paused:
            return
        self._take()
        if not self._paused and not self.is_closing():
            self._raw.resume_reading()

    def _take(self) -> None:
        while not (self._paused or self._ended or self._closing):
            try:
                data = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                self._fail(error)
                return
            if not data:
                self._end()
                continue
            self._inner.data_received(data)
            if not (self._incoming.pending or self._tls.pending()):
                break  # what has not come is not asked for: each refusal is an exception
        self._answer_control()

    def _answer_control(self) -> None:
        data = self._outgoing.read()
        self._control_bytes += len(data)
        if self._control_bytes > _MAX_CONTROL_BYTES:
            self._error = ConnectionResetError("the client changes keys without an end")
            self.abort()
        elif data and not self.is_closing():
            self._raw.write(data)

    def _end(self) -> None:
        self._ended = True
        if not self._inner.eof_received():
            self.close()

    def _say_last(self) -> None:
        if not self._said_last:
            self._said_last = True
            with suppress(ssl.SSLError):  # the client's own last word has not come, and is not waited for
                self._tls.unwrap()
            data = self._outgoing.read()
            if data and not self._raw.is_closing():
                self._raw.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        """Say why, if OpenSSL has a word for it, and end it as something that went wrong."""
        self._error = ConnectionResetError(error.reason or str(error))
        self._said_last = self._closing = True
        if not self._raw.is_closing():
            self._raw.write(self._outgoing.read())
            self._raw.close()
