"""The client's side of HTTP/1.1. `Http1Connection` is one connection, over TCP, TLS or a unix socket: one request at a
time, a response read whole; no redirects, cookies, proxies or compression, which no part of Hawker uses.
`ConnectionPool` decides which connection of an origin a request takes and which request waits for one: it is pure, and
`now` comes from outside, in seconds. `HttpTransport` joins the two.

A request begins with `enter`, or with `queue` when that refuses, and ends with `leave`. In between it may `take` an
idle connection and `put` it back. A request that may not be repeated is sent once at most.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar, cast

import anyio
import httptools

from hawker.http.message import MAX_ANSWER_BYTES, AnswerTooLong, HttpOrigin, HttpResponse, OriginTls, ResponseParser

C = TypeVar("C")  # a connection
W = TypeVar("W")  # a waiting request


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
        """Send the bytes of one request and wait for its response until `deadline`, a moment of the loop's clock. The
        response has at most `most_bytes`; None: the `max_response_bytes` of the connection. Raises `TimeoutError`,
        another `OSError` when the connection is lost, `AnswerTooLong`, and `HttpParserError` for bytes that are no
        HTTP. Whether the request took effect is not known then. The connection is closed after every error."""
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
    """Connect over TCP, with TLS where `tls` is given. `name` is the name that the certificate must have, where that is
    not `host`. Raises `OSError` when nobody listens, the name is not known or the certificate is not good, and
    `UnicodeError` for a text that can be no name."""
    _, connection = await asyncio.get_running_loop().create_connection(make, host, port, ssl=tls, server_hostname=name)
    return connection


async def connect_unix(connected: socket.socket, make: Callable[[], Http1Connection]) -> Http1Connection:
    """Connect over a unix socket that is `connected` already, and is closed with the connection. Raises `OSError`."""
    try:
        _, connection = await asyncio.get_running_loop().create_unix_connection(make, sock=connected)
    except BaseException:
        connected.close()
        raise
    return connection


class ConnectionPool(Generic[C, W]):
    """The connections of one origin. At most `max_in_use` requests are under way at once (0 or more; 0 is no limit);
    the others wait, first come, first served. A connection that was idle for `max_idle_s` seconds is not used again."""

    def __init__(self, *, max_in_use: int, max_idle_s: float) -> None:
        self._max_in_use = max_in_use
        self._max_idle_s = max_idle_s
        self._in_use = 0
        self._idle: dict[C, float] = {}  # when it was put back, the least recent first
        self._waiting: deque[W] = deque()

    def enter(self) -> bool:
        """Begin a request. False when it has to wait: nothing has changed then."""
        if self._max_in_use and self._in_use >= self._max_in_use:
            return False
        self._in_use += 1
        return True

    def queue(self, waiter: W) -> None:
        """Wait for a turn. `leave` or `abandon` returns the waiter when its turn has come: it has entered then."""
        self._waiting.append(waiter)

    def leave(self) -> W | None:
        """End a request. Returns the waiter whose turn it is now."""
        if self._waiting:
            return self._waiting.popleft()
        self._in_use -= 1
        return None

    def abandon(self, waiter: W) -> W | None:
        """Give up waiting. Returns the waiter that takes the turn instead, if the turn had come already."""
        try:
            self._waiting.remove(waiter)
        except ValueError:
            return self.leave()
        return None

    def take(self) -> C | None:
        """The idle connection that was used last. Call `expire` first."""
        return self._idle.popitem()[0] if self._idle else None

    def put(self, connection: C, now: float) -> None:
        """Keep an open connection for the next request."""
        self._idle[connection] = now

    def discard(self, connection: C) -> None:
        """Forget a connection that was closed; no change if it is not idle."""
        self._idle.pop(connection, None)

    def expire(self, now: float) -> list[C]:
        """Forget the connections that were idle for too long, and return them to be closed."""
        expired = []
        for connection, since in self._idle.items():
            if now - since < self._max_idle_s:
                break
            expired.append(connection)
        for connection in expired:
            del self._idle[connection]
        return expired

    def clear(self) -> list[C]:
        """Forget all idle connections, and return them to be closed."""
        idle = list(self._idle)
        self._idle.clear()
        return idle


MAX_IDLE_S = 15.0  # less than the server keeps an idle connection
_SAFE = frozenset({"GET", "HEAD"})
_REPEATABLE = _SAFE | {"PUT", "DELETE"}

_Turn: TypeAlias = asyncio.Future[None]


class NotSent(Exception):
    """No connection was free or could be opened in time: nothing was sent."""


class HttpTransport:
    """Sends requests to one origin. `max_connections` is 0 or more, 0 for no limit. A request waits at most `queue_s`
    seconds for a free connection, and a new connection takes at most `connect_s` seconds. `tls` says how TLS is spoken
    to the origin; None: with the authorities that the host trusts."""

    def __init__(
        self,
        origin: HttpOrigin,
        *,
        max_connections: int,
        connect_s: float,
        queue_s: float,
        tls: OriginTls | None = None,
    ) -> None:
        self.origin = origin
        self._connect_s = connect_s
        self._queue_s = queue_s
        self._tls = tls
        self._usual: ssl.SSLContext | None = None
        self._open: set[Http1Connection] = set()
        self._pool: ConnectionPool[Http1Connection, _Turn] = ConnectionPool(
            max_in_use=max_connections, max_idle_s=MAX_IDLE_S
        )

    async def request(
        self, method: str, request: bytes, timeout_s: float, most_bytes: int = MAX_ANSWER_BYTES
    ) -> HttpResponse:
        """Send the bytes of a request and wait for its response, `timeout_s` seconds at most, waiting and connecting
        included. The response has at most `most_bytes`, with its head. A GET,
        HEAD, PUT or DELETE is sent once more when a kept connection turns out to be closed.

        Raises `NotSent`, `TimeoutError`, another `OSError` when the connection is lost, `AnswerTooLong` and
        `HttpParserError`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self._pool.enter():
            await self._wait_for_turn(deadline)
        try:
            return await self._exchange(method, request, deadline, most_bytes)
        finally:
            self._wake(self._pool.leave())

    async def close(self) -> None:
        """Close all connections; requests that are under way are lost. A later request opens a new connection."""
        self._pool.clear()
        for connection in list(self._open):
            connection.close()

    async def _exchange(self, method: str, request: bytes, deadline: float, most_bytes: int) -> HttpResponse:
        connection = self._idle() or await self._connect(deadline)
        try:
            return await self._send(connection, request, deadline, most_bytes)
        except OSError as error:
            if method not in _REPEATABLE or not connection.was_stale:
                raise
            lost = error
        try:
            connection = await self._connect(deadline)
        except NotSent as error:
            if method in _SAFE:
                raise
            raise lost from error  # it was sent once, and may have taken effect
        return await self._send(connection, request, deadline, most_bytes)

    async def _send(
        self, connection: Http1Connection, request: bytes, deadline: float, most_bytes: int
    ) -> HttpResponse:
        try:
            return await connection.request(request, deadline, most_bytes)
        finally:
            if connection.is_reusable:
                self._pool.put(connection, asyncio.get_running_loop().time())
            else:
                connection.close()

    def _idle(self) -> Http1Connection | None:
        for expired in self._pool.expire(asyncio.get_running_loop().time()):
            expired.close()
        while (connection := self._pool.take()) is not None:
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    async def _connect(self, deadline: float) -> Http1Connection:
        """Raises `NotSent`."""
        origin, left_s = self.origin, deadline - asyncio.get_running_loop().time()
        try:
            with anyio.move_on_after(min(left_s, self._connect_s)):
                connection = await connect_tcp(origin.host, origin.port, self._context(), self._made, self._name)
                if connection.is_reusable:  # else it was lost already
                    self._open.add(connection)
                return connection
        except (OSError, UnicodeError) as error:
            raise NotSent(str(error)) from error
        raise NotSent("it takes too long")

    def _context(self) -> ssl.SSLContext | None:
        """Raises `OSError` when what this node would show is not there."""
        if not self.origin.tls:
            return None
        if self._tls is not None:
            return self._tls.context()
        if self._usual is None:
            self._usual = ssl.create_default_context()
        return self._usual

    @property
    def _name(self) -> str | None:
        return self._tls.name if self._tls is not None and self.origin.tls else None

    def _made(self) -> Http1Connection:
        return Http1Connection(self._lost)

    def _lost(self, connection: Http1Connection) -> None:
        self._open.discard(connection)
        self._pool.discard(connection)

    async def _wait_for_turn(self, deadline: float) -> None:
        """Raises `NotSent`."""
        loop = asyncio.get_running_loop()
        turn: _Turn = loop.create_future()
        self._pool.queue(turn)
        timer = loop.call_at(min(deadline, loop.time() + self._queue_s), _end, turn)
        try:
            await turn
        except BaseException:
            self._wake(self._pool.abandon(turn))
            raise
        finally:
            timer.cancel()

    def _wake(self, turn: _Turn | None) -> None:
        """A waiter that gave up at this moment passes its turn on itself, by `abandon`."""
        if turn is not None and not turn.done():
            turn.set_result(None)


def _end(turn: _Turn) -> None:
    if not turn.done():
        turn.set_exception(NotSent("no connection became free"))
