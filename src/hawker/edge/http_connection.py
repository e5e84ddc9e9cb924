"""HTTP/1.1 connections of clients: a head at a time, one request under way, bodies streamed both ways.

What a client can hold of this process is bounded: a head, 256 KiB of a body, one task; and how long it may take for
each is bounded, too. Control flow is in one task for each connection; bytes go through callbacks.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import ClassVar, TypeAlias, cast

import anyio

from hawker.edge.body import BadBody, MessageBody, NoBody, Trailer, chunk, last_chunk, request_body
from hawker.edge.exchange import HttpExchange
from hawker.edge.head import HEAD_BYTES, LINE_BYTES, Field, RequestHead, RequestReader, ResponseHead, bare_end_since
from hawker.edge.http2_connection import PREFACE_HEAD, Http2Connection
from hawker.edge.nghttp2 import is_there
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.requester import HttpServices
from hawker.edge.routes import Door
from hawker.edge.splice import ROOM_AT, UNSENT_MAX, address_of, reset
from hawker.edge.writing import Origin, OwnAnswer, http1_head, refusal
from hawker.http.tls_transport import TlsTransport
from hawker.http.untaken import Untaken
from hawker.ids import AppName

HEAD_S, IDLE_S, LINGER_S = 10.0, 75.0, 1.0
CHECKED = 1000
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    """The connection of one client; `tls` is the app that its TLS is for. Keeps `Requester` and `Closable`."""

    carrier: ClassVar[type[HttpExchange]] = HttpExchange

    def __init__(
        self,
        services: HttpServices,
        door: Door,
        live: "set[HttpConnection | Http2Connection]",
        *,
        tls: AppName | None = None,
    ) -> None:
        self._services = services
        self._live = live
        self._door = door
        self._tls = tls
        self._now = services.clock.monotonic
        self._loop = asyncio.get_running_loop()  # asking for it costs a call of the kernel each time
        self._call_soon: Callable[..., object] = self._loop.call_soon
        self._transport: asyncio.Transport | None = None
        self._scope: anyio.CancelScope | None = None
        self._buffer = bytearray()
        self._reader = RequestReader()
        self._waiter: asyncio.Future[None] | None = None
        self._begun = False  # something of the next head has come
        self._exchange: HttpExchange | None = None
        self._head: RequestHead | None = None
        self._body: MessageBody = NoBody()
        self._ended = False
        self._paused = False
        self.choked = False  # the client takes no more of what is written
        self._untaken = Untaken()
        self._out: list[bytes] = []  # goes out in one piece, when nothing more is said at once
        self._chunks = False  # the answer under way goes on in chunks
        self._keep = False  # another request may follow
        self._last = False  # none may, since the process goes
        self._handed_over = False
        self._overdue: ProxyError | None = None
        self.deadline = inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_MAX)
        self._services.counters.add("connects")
        if not self._services.table.admit(self, address_of(self._transport, "peername")):
            self._transport.write(refusal(ProxyError(Code.HC01), self._services.new_request_id()).http1())
            self._transport.close()
            return
        self._live.add(self)
        self._services.spawn(self._serve_all)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._exchange is not None and self._exchange.takes_body:
            self._pump(self._exchange)
        elif len(self._buffer) > HEAD_BYTES:
            self._pause()
        self._notify()

    def eof_received(self) -> bool:
        """Note that the client sends no more; it may have sent all that it has to say."""
        self._ended = True
        if self._exchange is not None:
            self._exchange.client_left()
        self._notify()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._ended = True
        self._services.table.release(self)
        self._live.discard(self)
        if self._scope is not None:
            self._scope.cancel()

    def pause_writing(self) -> None:
        self.choked = True
        if self._exchange is not None:
            self._exchange.client_may_read(reading=False)

    def resume_writing(self) -> None:
        self.choked = False
        self._untaken.forget()
        if self._exchange is not None:
            self._exchange.client_may_read(reading=True)
        self._notify()

    def give_up(self) -> None:
        if self._transport is not None:
            reset(self._transport)

    def check_time(self, now: float) -> None:
        """To be called now and then: end the request, or the connection, whose time is over."""
        transport = self._transport
        if self._scope is None or transport is None:
            return
        taken = not (self.choked or transport.is_closing())
        if self._untaken.is_gone(transport, now) or (not taken and self._untaken.too_long(transport, now)):
            self.give_up()
        elif self._exchange is not None:
            if self._exchange.is_late(now, blocked=self._paused):
                self._overdue = self._exchange.overdue
                self._scope.cancel()
        elif now >= self.deadline:
            self.deadline = inf
            if self._begun:  # else nobody asked for anything: it is closed without a word
                self._overdue = ProxyError(Code.HB04)
            self._scope.cancel()

    @property
    def lasts(self) -> bool:
        """Whether the connection is no HTTP any more, and has no end that can be waited for."""
        return self._handed_over

    def drain(self, *, at_once: bool) -> None:
        """Let the next answer be the last one, since the process goes. A connection without a request is closed,
        `at_once` or a little later, so that a request that comes just now is answered."""
        self._last = True
        if at_once and self._exchange is None and not self._buffer and self._scope is not None:
            self._scope.cancel()

    # As the client of an exchange.

    @property
    def gone(self) -> bool:
        return self._transport is None

    @property
    def leaving(self) -> bool:
        return self._ended

    def begin_body(self) -> None:
        self._resume()
        if self._exchange is not None:
            self._pump(self._exchange)

    def proceed(self) -> None:
        if not self._buffer:
            self._write(_CONTINUE)

    def may_read(self, *, reading: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if reading:
                self._resume()
            else:
                self._pause()

    def interim(self, answer: ResponseHead, fields: list[Field]) -> None:
        if self._head is not None and self._head.minor == 1:
            self._write(http1_head(answer.status, answer.reason, fields, b"\r\n"))

    def answer(self, answer: ResponseHead, fields: list[Field]) -> None:
        """Send the head of an answer. A body without a length goes in chunks to a client that knows them, else to the
        end of the connection."""
        head = self._head
        assert head is not None, "it has asked"
        unknown = not answer.bodiless and answer.length is None
        self._chunks = unknown and head.minor == 1
        may_follow = head.keep_alive and not self._ended and not self._last
        self._keep = may_follow and self._body.done and (self._chunks or not unknown)
        end = b""
        if self._chunks or (answer.chunked and head.minor == 1):
            end = b"transfer-encoding: chunked\r\n"
        elif answer.length is not None:
            end = b"content-length: %d\r\n" % answer.length
        if not self._keep:
            end += b"connection: close\r\n"
        elif head.minor == 0:
            end += b"connection: keep-alive\r\n"
        self._write(http1_head(answer.status, answer.reason, fields, end + b"\r\n"))

    def write(self, content: bytes) -> None:
        self._write(chunk(content) if self._chunks else content)

    def finish(self, trailers: tuple[Trailer, ...]) -> None:
        if self._chunks:
            self._write(last_chunk(trailers))

    def say(self, answer: OwnAnswer) -> None:
        self._keep = False
        self._write(answer.http1(head_only=self._head is not None and self._head.method == b"HEAD"))

    def break_off(self) -> None:
        self.give_up()

    def hand_over(self, answer: ResponseHead, fields: list[Field]) -> tuple[asyncio.Transport, bytes] | None:
        transport, early, self._buffer = self._transport, bytes(self._buffer), bytearray()
        if transport is None or self._head is None:
            return None
        self._handed_over = True
        self._flush()
        end = b"connection: upgrade\r\nupgrade: %b\r\n\r\n" % (answer.upgrade or self._head.upgrade)
        transport.write(http1_head(answer.status, answer.reason, fields, end))
        if self.choked:  # which nobody tells who has the connection from now on
            self._call_soon(_tell_full, transport)
            self.choked = False
        return transport, early

    # From head to head.

    async def _serve_all(self) -> None:
        transport = self._transport
        if transport is None:
            return
        sock = transport.get_extra_info("sockname")
        origin = Origin(
            client=address_of(transport, "peername"),
            address=str(sock[0]).removeprefix("::ffff:"),
            port=self._door.port,
            tls=self._tls is not None,
            region=self._services.region(),
        )
        with anyio.CancelScope() as self._scope:
            await self._converse(origin, origin.lines)
        if self._overdue is not None and self._exchange is not None:
            self._exchange.refuse(self._overdue)
        elif self._overdue is not None:
            self._refuse(self._overdue)
        self._exchange = None
        if self._handed_over:  # it is not told of its end any more
            self.connection_lost(None)
        else:
            self._close()

    async def _converse(self, origin: Origin, lines: bytes) -> None:
        """Requests in a row, until one of the two ends has enough."""
        first = True
        while self._transport is not None:
            self._flush()
            if self.choked:
                await self._news()
                continue
            try:
                data = await self._next_head(first=first)
                if data is None:
                    return
                if first and data == PREFACE_HEAD and self._tls is None and is_there():
                    self._become_http2(data)
                    return
                self._services.table.work(self)
                head = self._reader.read(data)
            except ProxyError as error:
                self._refuse(error)
                await self._linger()
                return
            exchange = self._exchange = self._begin(head, origin, lines)
            try:
                await exchange.run()
            finally:
                if self._overdue is None:
                    self._exchange = None
            if not (self._keep and self._body.done and exchange.done):
                await self._linger()
                return
            self._services.table.rest(self)
            first = False

    async def _next_head(self, *, first: bool) -> bytes | None:
        """None when the client has nothing more to ask. Raises `ProxyError`."""
        self._begun, looked = False, 0
        self.deadline = self._now() + (self._head_s() if first else IDLE_S)
        if not self._buffer and not self._ended and not self._paused:
            await self._news()
        while True:
            while self._buffer.startswith(b"\r\n"):  # RFC 9112, 2.2: an empty line before a request is passed over
                del self._buffer[:2]
            end = self._buffer.find(b"\r\n\r\n", max(0, looked - 3))
            head = self._buffer[: end + 4] if end >= 0 else self._buffer
            if bare_end_since(head, looked):
                raise ProxyError(Code.HB01, "the request is malformed: a line ends with CR or LF alone")
            if end >= 0 and len(head) <= HEAD_BYTES:
                data = bytes(head)
                del self._buffer[: end + 4]
                self.deadline = inf
                return data
            looked = len(self._buffer)
            if len(head) > LINE_BYTES and b"\r\n" not in head:
                raise ProxyError(Code.HB03)
            if len(head) > HEAD_BYTES:
                raise ProxyError(Code.HB02)
            if self._ended or (not first and not self._buffer and self._transport is None):
                return None
            if self._paused:
                self._resume()
            if self._buffer and not self._begun:
                self._begun, self.deadline = True, self._now() + self._head_s()
            await self._news()

    def _head_s(self) -> float:
        """How long a head may take, by the word of whose door it is: before one is whole nobody is named."""
        routes = self._services.routes
        app = self._tls or routes.first_app(self._door)
        target = None if app is None else routes.newest(self._door, app)
        options = target.port.http_options if target is not None else None
        return min(float((options.headers_read_timeout if options else None) or HEAD_S), IDLE_S)

    def _news(self) -> asyncio.Future[None]:
        """Done when something has come, or nothing will."""
        self._waiter = self._loop.create_future()
        return self._waiter

    def _begin(self, head: RequestHead, origin: Origin, lines: bytes) -> HttpExchange:
        self._head, self._keep, self._chunks = head, False, False
        self._body = request_body(chunked=head.chunked, length=head.length)
        return self.carrier(self._services, self, self._door, self._tls, origin, lines, head)

    def _become_http2(self, data: bytes) -> None:
        """The client knows that HTTP/2 is spoken here, and asks nobody. From now on the connection is another one's."""
        self._resume()
        transport, early = self._transport, data + bytes(self._buffer)
        self.connection_lost(None)
        if transport is not None:
            made = Http2Connection(self._services, self._door, self._live)
            transport.set_protocol(made)
            made.connection_made(transport)
            made.data_received(early)

    def _pump(self, exchange: HttpExchange) -> None:
        """Pass on what has come of the request's body."""
        data, self._buffer = bytes(self._buffer), bytearray()
        try:
            mine, rest = self._body.feed(data)
        except BadBody as error:
            self._overdue = ProxyError(Code.HB01, f"the request is malformed: {error}")
            if self._scope is not None:
                self._scope.cancel()
            return
        if mine:
            exchange.take(mine)
        self._buffer += rest
        if self._body.done:
            exchange.take_end(self._body.trailers)

    def _write(self, data: bytes) -> None:
        """A head and what follows it at once are one packet, and one call of the kernel."""
        if not self._out:
            self._call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if not self._out:
            return
        data, self._out = b"".join(self._out), []
        if self._transport is not None:
            self._transport.write(data)
            self._services.counters.add("bytes_out", len(data))

    def _close(self) -> None:
        if isinstance(self._transport, TlsTransport):
            self._transport.hold()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def _linger(self) -> None:
        """Read on for a moment after the last answer: a reset for bytes that nobody read could destroy it."""
        if self._transport is None or self._ended or not (self._buffer or not self._body.done):
            return
        self._buffer.clear()
        self._flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._body = NoBody()
        with anyio.move_on_after(LINGER_S):
            while not self._ended and self._transport is not None:
                self._resume()
                await self._news()
                self._buffer.clear()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _refuse(self, error: ProxyError) -> None:
        """Of no request that was understood."""
        self._services.counters.add(f"errors_{error.code.name}")
        self._head = None
        self.say(refusal(error, self._services.new_request_id()))

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()


AnyConnection: TypeAlias = HttpConnection | Http2Connection


def _tell_full(transport: asyncio.Transport) -> None:
    """To who has it now, unless it was told meanwhile that there is room."""
    if transport.get_protocol() is not None and transport.get_write_buffer_size() > ROOM_AT:
        cast(asyncio.Protocol, transport.get_protocol()).pause_writing()


class HttpConnections:
    """All HTTP connections of a process: makes them, and watches their time."""

    connection: ClassVar[type[HttpConnection]] = HttpConnection

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._live: set[AnyConnection] = set()
        self._unchecked: list[AnyConnection] = []

    def accept(self, door: Door, *, tls: AppName | None = None, http2: bool = False) -> asyncio.Protocol:
        if http2:
            return Http2Connection(self._services, door, self._live, tls=tls)
        return self.connection(self._services, door, self._live, tls=tls)

    def drain(self, *, at_once: bool) -> int:
        """To be called again and again: drain each connection. Returns how many are left that have an end."""
        for connection in list(self._live):
            connection.drain(at_once=at_once)
        return sum(not connection.lasts for connection in self._live)

    def check_time(self) -> None:
        """To be called a few times a second: check the time of connections. Of very many connections each call looks at
        some: all requests would wait for milliseconds while 10,000 are looked at."""
        now = self._services.clock.monotonic()
        if not self._unchecked:
            self._unchecked = list(self._live)
        turn, self._unchecked = self._unchecked[:CHECKED], self._unchecked[CHECKED:]
        for connection in turn:
            if connection in self._live:
                connection.check_time(now)
