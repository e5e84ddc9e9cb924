"""One client connection in HTTP/1.1, over TCP, TLS or a unix socket: one request at a time, a response read whole.

No redirects, cookies, proxies or compression, which no part of Hawker uses. A general HTTP client takes several times
the processor time for each request.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import cast

import httptools

from hawker.http.message import MAX_ANSWER_BYTES, AnswerTooLong, HttpResponse, ResponseParser


class Http1Connection(asyncio.Protocol):
    """The event loop calls `connection_made`, `data_received`, `eof_received` and `connection_lost`. `on_lost` is
    called once, when the connection is closed by either side."""

    def __init__(
        self, on_lost: "Callable[[Http1Connection], None] | None" = None, max_response_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        """`max_response_bytes` counts the head, too; a longer response ends the connection."""
        self._on_lost = on_lost
        self._max_response_bytes = max_response_bytes
        self._most_bytes = max_response_bytes  # of the request that is under way
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser(self._complete)
        self._answered: asyncio.Future[HttpResponse] | None = None
        self._received_bytes = 0
        self._requests = 0
        self._broken: Exception | None = None
        self._goes_on = True

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent: the connection is open, and the last response was read whole."""
        return self._goes_on and self._transport is not None and not self._transport.is_closing()

    @property
    def was_stale(self) -> bool:
        """Whether the last request failed because the other side had closed the connection: it was used before, and
        this time not one byte came, nor did the time run out."""
        return self._requests > 1 and not self._received_bytes and not isinstance(self._broken, TimeoutError)

    async def request(self, request: bytes, deadline: float, most_bytes: int | None = None) -> HttpResponse:
        """Send the bytes of one request and wait for its response until `deadline`, a moment of the loop's clock.
        It has at most `most_bytes`, those of the connection unless told.

        Raises `TimeoutError`, another `OSError` when the connection is lost, `AnswerTooLong`, and `HttpParserError`
        for what is no HTTP. Whether the request took effect is not known then. The connection is closed
        after every error."""
        loop = asyncio.get_running_loop()
        assert self._transport is not None
        self._requests += 1
        self._received_bytes = 0
        self._most_bytes = self._max_response_bytes if most_bytes is None else most_bytes
        self._goes_on = False
        if self._transport.is_closing():
            raise self._broken or ConnectionResetError("the connection was closed")
        self._answered = loop.create_future()
        timer = loop.call_at(deadline, self._break, TimeoutError("no answer in time"))
        try:
            self._transport.write(request)
            return await self._answered
        finally:
            timer.cancel()
            self._answered = None

    def close(self) -> None:
        """Close at once; a request that is under way is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _break(self, error: Exception) -> None:
        self._broken = self._broken or error
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._answered is None:
            self._break(ConnectionResetError("an answer came that nobody waits for"))
            return
        try:
            if self._received_bytes > self._most_bytes:
                raise AnswerTooLong(self._most_bytes)
            self._parser.feed(data)
        except httptools.HttpParserError as error:
            self._break(error)

    def eof_received(self) -> None:
        self._parser.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._break(error or ConnectionResetError("the other side closed the connection"))
        if self._on_lost is not None:
            self._on_lost(self)

    def _complete(self, response: HttpResponse, goes_on: bool) -> None:
        if self._answered is None or self._answered.done():
            self._break(ConnectionResetError("two answers came to one request"))
            return
        self._goes_on = goes_on
        self._answered.set_result(response)


async def connect_tcp(
    host: str, port: int, tls: ssl.SSLContext | None, make: Callable[[], Http1Connection], name: str | None = None
) -> Http1Connection:
    """`name` is what the certificate must have, where that is not the host's. Raises `OSError` when nobody listens, the
    name is not known or the certificate is not good, and `UnicodeError` for what can be no name."""
    _, connection = await asyncio.get_running_loop().create_connection(make, host, port, ssl=tls, server_hostname=name)
    return connection


async def connect_unix(connected: socket.socket, make: Callable[[], Http1Connection]) -> Http1Connection:
    """Over a unix socket that is connected already, and is closed with the connection. Raises `OSError`."""
    try:
        _, connection = await asyncio.get_running_loop().create_unix_connection(make, sock=connected)
    except BaseException:
        connected.close()
        raise
    return connection
