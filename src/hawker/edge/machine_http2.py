"""Connections to machines that speak HTTP/2 without TLS, which their config says (`h2_backend`): for gRPC, most of all.
One request at a time, as over HTTP/1.1, so a machine's count stays what its gate says.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from hawker.edge.body import Trailer, may_trail, put_last
from hawker.edge.head import Field, ResponseHead, parse_http2_answer
from hawker.edge.machine_connection import MachineConnection, RequestSource
from hawker.edge.nghttp2 import CANCEL, Http2Session
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import ServiceTarget
from hawker.edge.splice import UNSENT_MAX

_NOT_SAID = frozenset({b"host", b"connection", b"transfer-encoding", b"upgrade"})
_CLOSED = "the connection was closed before the answer was whole"


class MachineHttp2Connection(MachineConnection):
    """A connection to a machine that speaks HTTP/2. Keeps `Http2User`."""

    bare: ClassVar[bool] = False

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._call_soon: Callable[..., object] = asyncio.get_running_loop().call_soon
        self._session = Http2Session(self, now, client=True)
        self._stream = 0
        self._answers: list[tuple[list[Field], bool]] = []
        self._content: list[bytes] = []
        self._trailers: tuple[Trailer, ...] | None = None  # once the answer is whole
        self._reading = True
        self._full = False  # the machine takes no more of the request
        self._flushing = self._blocked = False

    # As a protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        why = self._session.feed(data)
        self._flush()
        if not why and self._session.over and self._trailers is None:
            why = "what it says is none"
        if why:
            self._break(why)
        self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._ended = True
        if self._trailers is None:
            self._break(_CLOSED)
        self._notify()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._flush_soon()

    # As a connection with a machine.

    def ask(self, source: RequestSource, head: bytes, *, chunked: bool) -> None:
        self._source, self._error, self.silent, self._trailers = source, None, True, None
        self._answers, self._content, self._reading, self._full = [], [], True, False
        lines = head.split(b"\r\n")
        method, target, _ = lines[0].split(b" ")
        pairs = [line.partition(b": ") for line in lines[1:] if line]
        given = [(name, value) for name, _, value in pairs]
        authority = next(value for name, value in given if name == b"host")
        pseudo = [(b":method", method), (b":scheme", b"http"), (b":authority", authority), (b":path", target)]
        fields = [*pseudo, *(field for field in given if field[0] not in _NOT_SAID)]
        length = next((value for name, value in given if name == b"content-length"), b"0")
        self._stream = self._session.request(fields, ended=not chunked and length == b"0")
        if self._ended:
            self._break(_CLOSED)
        self._flush_soon()

    def send(self, content: bytes) -> None:
        if self._session.send(self._stream, content) > UNSENT_MAX and not self._full and self._source is not None:
            self._full = True
            self._source.may_read(reading=False)
        self._flush_soon()

    def finish(self, trailers: tuple[Trailer, ...]) -> None:
        self._session.finish(self._stream, tuple((name.lower(), value) for name, value in trailers))
        self._flush_soon()

    def may_read(self, *, reading: bool) -> None:
        self._reading = reading
        if reading:
            self._hand_on()

    async def answer_head(self, method: bytes) -> ResponseHead:
        while not self._answers:
            if self._error is not None:
                raise self._error
            await self._news()
        fields, ended = self._answers.pop(0)
        return parse_http2_answer(fields, method, ended=ended)

    def begin_body(self, head: ResponseHead, pass_on: Callable[[bytes], None]) -> bool:
        self._pass = pass_on
        return self._has_passed()

    def _has_passed(self) -> bool:
        self._hand_on()
        whole = self._trailers is not None and not self._content
        if not whole and self._error is not None:
            raise self._error
        return whole

    @property
    def trailers(self) -> tuple[Trailer, ...]:
        return self._trailers or ()

    @property
    def reusable(self) -> bool:
        whole = self._trailers is not None and not self._content
        sent = self._session.has_sent(self._stream)
        return self.transport is not None and self._error is None and whole and sent and not self._session.over

    # What the machine sends.

    def on_head(self, stream: int, fields: list[Field], *, ended: bool) -> None:
        self.silent = False
        if stream == self._stream:
            self._answers.append((fields, ended))
            if ended:
                self._trailers = ()

    def on_trailers(self, stream: int, fields: list[Field]) -> None:
        if stream == self._stream:
            self._trailers = tuple(field for field in fields if may_trail(field[0]))

    def on_data(self, stream: int, data: bytes) -> None:
        if stream == self._stream:
            put_last(self._content, data)
            self._hand_on()
        else:
            self._session.consume(stream, len(data))

    def on_end(self, stream: int) -> None:
        if stream == self._stream:
            self._trailers = ()

    def on_closed(self, stream: int, error: int) -> None:
        if stream == self._stream and self._trailers is None:
            self._break(f"the request was reset ({error})")
            self._notify()

    def on_room(self, stream: int) -> None:
        self._call_soon(self._make_room)

    def _make_room(self) -> None:
        if self._full and self._source is not None:
            self._full = False
            self._source.may_read(reading=True)

    def _hand_on(self) -> None:
        while self._content and self._reading and self._pass is not None:
            data = self._content.pop(0)
            self._pass(data)
            self._session.consume(self._stream, len(data))
            self._flush_soon()
        self._notify()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self.transport is not None and not self._blocked:
            data = self._session.take(UNSENT_MAX)
            if not data:
                break
            self.transport.write(data)

    def _break(self, why: str) -> None:
        if self._error is not None:
            return
        if self._session.settled:
            self._error = ProxyError(Code.PU02, known=f"the machine broke its HTTP/2 off: {why}")
        else:
            self._error = ProxyError(Code.PU01, known=f"the machine does not speak HTTP/2, as its config says: {why}")

    def abort(self) -> None:
        if self.transport is not None and self._stream and self._trailers is None:
            self._session.reset(self._stream, CANCEL)
            self._flush()
        super().abort()


def connection_with(now: Callable[[], float], target: ServiceTarget) -> MachineConnection:
    """A connection in the version of HTTP that the machine's config says."""
    options = target.port.http_options
    return MachineHttp2Connection(now) if options is not None and options.h2_backend else MachineConnection()
