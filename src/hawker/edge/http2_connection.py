"""HTTP/2 connections of clients (RFC 9113): each stream is a request of its own, in a task of its own. WebSockets come
in streams, too (RFC 8441).

What a client can hold of this process is bounded: 128 streams, 256 KiB of each that no machine has taken, 1 MiB of all;
as much of answers that it has not taken, for a time (`untaken`), and a window of each machine that speaks HTTP/2.
Floods of frames end the connection (`nghttp2`).
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, cast

from hawker.edge.body import Trailer, may_trail, put_last
from hawker.edge.exchange import HttpExchange
from hawker.edge.head import Field, Http2RequestReader, RequestHead, ResponseHead
from hawker.edge.nghttp2 import CANCEL, INTERNAL_ERROR, NO_ERROR, Http2Session
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.requester import HttpServices
from hawker.edge.routes import Door
from hawker.edge.splice import UNSENT_MAX, address_of, reset
from hawker.edge.writing import Origin, OwnAnswer, refusal
from hawker.fair.round_robin import Pieces
from hawker.http.untaken import UntakenStreams
from hawker.ids import AppName

PREFACE_HEAD = b"PRI * HTTP/2.0\r\n\r\n"
"""The first bytes of a client of HTTP/2: to a reader of HTTP/1.1 they look like a head."""
BEGIN_S, IDLE_S = 10.0, 75.0
"""Seconds that a client may take until its first request, and without a request under way."""
_STOP_AGAIN_S = 0.1
_ACCEPT = b"sec-websocket-accept"


class _Stream:
    """One request. Keeps `Requester`."""

    def __init__(self, connection: "Http2Connection", number: int) -> None:
        self._connection = connection
        self._number = number
        self.exchange: HttpExchange | None = None
        self.task: asyncio.Task[None] | None = None  # while it is served
        self.stopped = False
        self.transport: _StreamTransport | None = None
        self.gone = False
        self.leaving = False
        self._head_only = False
        self._early: list[bytes] = []  # of the body, while no machine takes it
        self._end: tuple[Trailer, ...] | None = None
        self._ended = False  # nothing more comes of the request
        self._reading = True
        self._full = False  # the client takes no more of the answer

    def begin(self, exchange: HttpExchange, head: RequestHead, *, ended: bool) -> None:
        self.exchange, self._head_only, self._ended = exchange, head.method == b"HEAD", ended

    @property
    def blocks(self) -> bool:
        """The machine takes no more of the body."""
        return not self._reading

    def stop(self) -> None:
        """Nobody waits for it any more. Said again until it has ended: a wait with a time that is over just then does
        not hear it."""
        if self.task is not None:
            self.stopped = True
            self.task.cancel()
            self._connection.later(_STOP_AGAIN_S, self.stop)

    # What the client sends.

    def take(self, data: bytes) -> None:
        put_last(self._early, data)
        self._pass_on()

    def end(self, trailers: tuple[Trailer, ...]) -> None:
        self._end, self._ended = trailers, True
        self._pass_on()

    def _pass_on(self) -> None:
        exchange = self.exchange
        if self.transport is not None:
            self.transport.pass_on(self._early, ended=self._end is not None)
            return
        if exchange is None or not self._reading or not exchange.takes_body:
            return
        while self._early and self._reading:
            data = self._early.pop(0)
            exchange.take(data)
            self._connection.consumed(self._number, len(data))
        if self._end is not None and not self._early:
            exchange.take_end(self._end)

    def closed(self, error: int) -> None:
        """Nothing more comes or goes."""
        self.gone = True
        for data in self._early:
            self._connection.consumed(self._number, len(data))
        self._early.clear()
        if self.transport is not None:
            self.transport.lose(ConnectionResetError("the stream was reset") if error else None)
        elif self.exchange is not None and not self.exchange.done:
            self.stop()

    def has_room(self) -> None:
        self._full = False
        self.tell_room()

    def tell_room(self) -> None:
        if self.transport is not None:
            self.transport.may_write(writing=not self.choked)
        elif self.exchange is not None:
            self.exchange.client_may_read(reading=not self.choked)

    # As the client of an exchange.

    @property
    def choked(self) -> bool:
        return self._full or self._connection.untaken.crowded

    def begin_body(self) -> None:
        self._pass_on()

    def proceed(self) -> None:
        self._connection.interim(self._number, [(b":status", b"100")])

    def may_read(self, *, reading: bool) -> None:
        self._reading = reading
        if reading:
            self._pass_on()

    def interim(self, answer: ResponseHead, fields: list[Field]) -> None:
        self._connection.interim(self._number, [(b":status", b"%d" % answer.status), *fields])

    def answer(self, answer: ResponseHead, fields: list[Field]) -> None:
        length = [] if answer.length is None else [(b"content-length", b"%d" % answer.length)]
        said = [(b":status", b"%d" % answer.status), *fields, *length]
        self._connection.answer(self._number, said, ended=answer.bodiless)

    def write(self, content: bytes) -> None:
        self._full = self._connection.send(self._number, content) > UNSENT_MAX or self._full
        if self.choked:
            self.tell_room()

    def finish(self, trailers: tuple[Trailer, ...]) -> None:
        known = tuple([(name.lower(), value) for name, value in trailers])
        self._connection.finish(self._number, known, stop=not self._ended)

    def say(self, answer: OwnAnswer) -> None:
        length = [(b"content-length", b"%d" % len(answer.body))] if answer.body else []
        said = [(b":status", b"%d" % answer.status), *answer.fields, *length]
        body = b"" if self._head_only else answer.body
        self._connection.answer(self._number, said, ended=not body)
        if body:
            self._connection.send(self._number, body)
        self._connection.finish(self._number, (), stop=not self._ended)

    def break_off(self) -> None:
        self._connection.reset(self._number, INTERNAL_ERROR)

    def hand_over(self, answer: ResponseHead, fields: list[Field]) -> tuple[asyncio.Transport, bytes] | None:
        if self.gone:
            return None
        said = [(b":status", b"200"), *(field for field in fields if field[0] != _ACCEPT)]
        self._connection.answer(self._number, said, ended=False)
        self.transport = _StreamTransport(self._connection, self._number, self)
        return self.transport, b""

    def resume(self) -> None:
        self._pass_on()


class _StreamTransport(asyncio.Transport):
    """A stream that is bytes both ways."""

    def __init__(self, connection: "Http2Connection", number: int, stream: _Stream) -> None:
        super().__init__()
        self._connection = connection
        self._number = number
        self._stream = stream
        self._protocol: Any = None
        self._paused = True  # until somebody is there who reads
        self._closing = False
        self._ended = False
        self._lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused and not self.is_closing():
            self._paused = False
            self._stream.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are those of streams."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():
            self._stream.write(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self.is_closing():
            self._connection.finish(self._number, (), stop=False)

    def close(self) -> None:
        if not self.is_closing():
            self._closing = True
            self._connection.finish(self._number, (), stop=not self._ended)
            self._tell_lost(None)

    def abort(self) -> None:
        if not self.is_closing():
            self._closing = True
            self._connection.reset(self._number, CANCEL)
            self._tell_lost(None)

    def pass_on(self, pieces: list[bytes], *, ended: bool) -> None:
        while pieces and not self._paused and not self.is_closing():
            data = pieces.pop(0)
            self._protocol.data_received(data)
            self._connection.consumed(self._number, len(data))
        if ended and not pieces and not self._ended and not self._paused and not self.is_closing():
            self._ended = True
            if not self._protocol.eof_received():
                self.close()

    def may_write(self, *, writing: bool) -> None:
        if not self.is_closing() and self._protocol is not None:
            (self._protocol.resume_writing if writing else self._protocol.pause_writing)()

    def lose(self, error: Exception | None) -> None:
        if not self.is_closing():
            self._tell_lost(error)

    def _tell_lost(self, error: Exception | None) -> None:
        self._lost = True
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


class Http2Connection(asyncio.Protocol):
    """The connection of one client; `tls` is the app that its TLS is for. Keeps `Http2User` and `Closable`."""

    def __init__(self, services: HttpServices, door: Door, live: "set[Any]", *, tls: AppName | None = None) -> None:
        self._services = services
        self._door = door
        self._live = live
        self._tls = tls
        self._now = services.clock.monotonic
        self._loop = asyncio.get_running_loop()  # asking for it costs a call of the kernel each time
        self._call_soon: Callable[..., object] = self._loop.call_soon
        self.later: Callable[..., object] = self._loop.call_later
        self._transport: asyncio.Transport | None = None
        self._reader = Http2RequestReader()
        self._session = Http2Session(self, self._now)
        self._pieces: Pieces | None = None
        self._streams: dict[int, _Stream] = {}
        self.untaken = UntakenStreams(self._session, self._streams)
        self._stopping: set[int] = set()  # answered before the request was whole
        self._origin: Origin | None = None
        self._lines = b""
        self._flushing = self._blocked = False
        self._why = ""
        self._last = False  # the process goes
        self.deadline = self._now() + BEGIN_S

    # As a protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_MAX)
        address = address_of(self._transport, "peername")
        if self._tls is not None:  # else it was counted when it came
            self._services.counters.add("connects")
        self._services.counters.add("connects_h2")
        if not self._services.table.admit(self, address):
            self._services.counters.add(f"errors_{Code.HC01.name}")
            self._session.shut()
            self._transport.write(self._session.take(UNSENT_MAX))
            self._transport.close()
            return
        self._live.add(self)
        self._origin = Origin(
            client=address,
            address=address_of(self._transport, "sockname"),
            port=self._door.port,
            tls=self._tls is not None,
            region=self._services.region(),
        )
        self._lines = self._origin.lines
        self._pieces = Pieces(self._transport, self._services.entrance, address, self._understand)
        self._flush_soon()

    def data_received(self, data: bytes) -> None:
        if self._pieces is not None:
            self._pieces.take(data)

    def _understand(self, piece: bytes) -> int:
        before = self._session.frames
        self._why = self._session.feed(piece) or self._why
        self._flush_soon()
        return self._session.frames - before

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._pieces is not None:
            self._pieces.drop()
        self._services.table.release(self)
        self._live.discard(self)
        for stream in list(self._streams.values()):
            stream.closed(CANCEL)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._flush_soon()

    def give_up(self) -> None:
        if self._transport is not None:
            reset(self._transport)

    def check_time(self, now: float) -> None:
        """To be called now and then: end the requests, and the connection, whose time is over."""
        for stream in list(self._streams.values()):
            exchange = stream.exchange
            if exchange is not None and stream.task is not None and exchange.is_late(now, blocked=stream.blocks):
                stream.stop()
        if self._transport is not None and self.untaken.too_long(self._transport, now, blocked=self._blocked):
            self.give_up()
        for number in self.untaken.streams(now, blocked=self._blocked):
            self.reset(number, CANCEL)
        if self._streams:
            return
        self._reader.forget()
        if now >= self.deadline:
            self.deadline = inf
            self._session.shut()
            self._why = "nobody asks for anything"
            self._flush_soon()

    @property
    def lasts(self) -> bool:
        return False

    def drain(self, *, at_once: bool) -> None:
        """The process goes: tell the client so (GOAWAY), and answer only what it has asked for."""
        if not self._last:
            self._last = True
            self._session.shut()
            self._flush_soon()
        if at_once:
            self.deadline = 0.0

    # What the client sends.

    def on_head(self, stream: int, fields: list[Field], *, ended: bool) -> None:
        if not self._streams:
            self._services.table.work(self)
        made = self._streams[stream] = _Stream(self, stream)
        try:
            head = self._reader.read(fields, ended=ended)
        except ProxyError as error:
            self._services.counters.add(f"errors_{error.code.name}")
            made.say(refusal(error, self._services.new_request_id()))
            return
        assert self._origin is not None, "it is connected"
        exchange = HttpExchange(self._services, made, self._door, self._tls, self._origin, self._lines, head)
        made.begin(exchange, head, ended=ended)
        self._services.spawn(self._serve, made)

    def on_trailers(self, stream: int, fields: list[Field]) -> None:
        if (found := self._streams.get(stream)) is not None:
            found.end(tuple(field for field in fields if may_trail(field[0])))

    def on_data(self, stream: int, data: bytes) -> None:
        found = self._streams.get(stream)
        if found is None or found.exchange is None or found.exchange.done:
            self._session.consume(stream, len(data))  # nobody reads it any more
        else:
            found.take(data)

    def on_end(self, stream: int) -> None:
        if (found := self._streams.get(stream)) is not None:
            found.end(())

    def on_closed(self, stream: int, error: int) -> None:
        found = self._streams.pop(stream, None)
        self._stopping.discard(stream)
        if found is not None:
            found.closed(error)
        if not self._streams:
            self._services.table.rest(self)
            self.deadline = self._now() + IDLE_S

    def on_room(self, stream: int) -> None:
        """Tell the stream later, not inside this call: it sends more to the session that calls."""
        if (found := self._streams.get(stream)) is not None:
            self._call_soon(found.has_room)

    async def _serve(self, stream: _Stream) -> None:
        exchange = stream.exchange
        assert exchange is not None, "it has begun"
        if stream.gone:
            return
        stream.task = asyncio.current_task(self._loop)  # a scope to be cancelled would cost ten times as much
        try:
            await exchange.run()
        except asyncio.CancelledError:
            if not stream.stopped:
                raise
        finally:
            stream.task = None
        if exchange.overdue is not None:
            exchange.refuse(exchange.overdue)
        elif not exchange.answered and not stream.gone:
            stream.break_off()
        stream.exchange = None

    # What goes to the client.

    def interim(self, stream: int, fields: list[Field]) -> None:
        self._session.interim(stream, fields)
        self._flush_soon()

    def answer(self, stream: int, fields: list[Field], *, ended: bool) -> None:
        self._session.answer(stream, fields, ended=ended)
        self._flush_soon()

    def send(self, stream: int, data: bytes) -> int:
        """Send data on the stream. Returns how many bytes wait on it."""
        self._flush_soon()
        self._services.counters.add("bytes_out", len(data))
        waits = self._session.send(stream, data)
        self.untaken.count()
        return waits

    def finish(self, stream: int, trailers: tuple[Field, ...], *, stop: bool) -> None:
        """End the answer. With `stop` the client need not go on with its request."""
        self._session.finish(stream, trailers)
        if stop and stream in self._streams:
            self._stopping.add(stream)
        self._flush_soon()

    def reset(self, stream: int, error: int) -> None:
        self._session.reset(stream, error)
        self._flush_soon()

    def consumed(self, stream: int, size: int) -> None:
        self._session.consume(stream, size)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if transport is None or self._blocked:
            return
        data = self._session.take(UNSENT_MAX)
        self.untaken.count()
        if self._stopping and len(data) < UNSENT_MAX:
            data += self._stop_requests()
        if data:
            transport.write(data)
        if len(data) >= UNSENT_MAX:
            self._flush_soon()
        elif self._why or self._session.over:
            transport.close()

    def _stop_requests(self) -> bytes:
        """Of streams whose answer has gone out whole: RFC 9113, 8.1."""
        for stream in [each for each in self._stopping if self._session.has_sent(each)]:
            self._stopping.discard(stream)
            self._session.reset(stream, NO_ERROR)
        return self._session.take(UNSENT_MAX)
