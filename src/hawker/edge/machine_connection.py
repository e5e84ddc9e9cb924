"""Connections to machines for HTTP/1.1: one answer at a time, streamed on as it comes; and those that rest between two
requests.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, TypeVar, cast

from hawker.edge.body import (
    BadBody,
    ChunkedBody,
    CountedBody,
    MessageBody,
    NoBody,
    OpenBody,
    Trailer,
    chunk,
    last_chunk,
)
from hawker.edge.head import HEAD_BYTES, AnswerReader, ResponseHead
from hawker.edge.hop_line import HopStream
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import ServiceTarget
from hawker.edge.splice import UNSENT_MAX, reset, watch_peer
from hawker.ids import InstanceId, MachineId

KEPT_S = 4.0
_KEPT_OF_SERVICE = 64


class RequestSource(Protocol):
    """The source of the request that a machine is sent."""

    def may_read(self, *, reading: bool) -> None:
        """Note whether the machine takes more of the request now."""

    def host_unheard(self) -> None:
        """Note that the machine's host, which is another one, says nothing any more."""


class MachineConnection(asyncio.Protocol):
    """A connection to a machine. `answer_head`, `begin_body` and `rest_of_body` follow each other. Keeps `HostWatcher`.
    `bare`: it writes requests and nothing else, so that another request may follow."""

    bare: ClassVar[bool] = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # asking for it costs a call of the kernel each time
        self.transport: asyncio.Transport | None = None
        self.silent = True  # not one byte of an answer to this request has come
        self.rested = False  # it was used before: the machine may be closing it just now
        self.refusal: ProxyError | None = None  # of another host's gate: not a byte has come to the machine
        self._source: RequestSource | None = None
        self._pass: Callable[[bytes], None] | None = None
        self._chunked = False
        self._buffer = bytearray()
        self._body: MessageBody | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: ProxyError | None = None
        self._ended = False
        self._reader = AnswerReader()
        self._how = ""  # it ended, where that is known

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(UNSENT_MAX)
        watch_peer(self.transport)

    def data_received(self, data: bytes) -> None:
        self.silent = False
        if self._body is not None and self._pass is not None:
            self._pass_on(data, self._pass)
        else:
            self._buffer += data
            if len(self._buffer) > HEAD_BYTES + UNSENT_MAX:
                self._fail("the machine's answer has a head of more than 64 KiB")
        self._notify()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._ended = True
        self._how = f" ({error})" if error is not None else ""
        if self._body is not None and not self._body.done and not isinstance(self._body, OpenBody):
            self._fail(f"the machine closed the connection in the middle of its answer{self._how}")
        elif isinstance(self._body, OpenBody):
            self._body.done = True
            if error is not None:
                self._fail("the machine broke its answer off")
        self._notify()

    def host_unheard(self) -> None:
        if isinstance(self.transport, HopStream) and not self.transport.asks:
            self.rested = False  # if it ends, that was not the machine
        if self._source is not None:
            self._source.host_unheard()

    def pause_writing(self) -> None:
        if self._source is not None:
            self._source.may_read(reading=False)

    def resume_writing(self) -> None:
        if self._source is not None:
            self._source.may_read(reading=True)

    def ask(self, source: RequestSource, head: bytes, *, chunked: bool) -> None:
        """Begin a request; its content follows, in chunks or as the head says."""
        self._source, self._pass, self._body, self._error, self.silent = source, None, None, None, True
        self._chunked = chunked
        self._write(head)

    def send(self, content: bytes) -> None:
        self._write(chunk(content) if self._chunked else content)

    def finish(self, trailers: tuple[Trailer, ...]) -> None:
        """End the request: it is whole."""
        if self._chunked:
            self._write(last_chunk(trailers))

    def may_read(self, *, reading: bool) -> None:
        """Read the answer, or stop while the client takes no more of it. While a gate is asked it is read all the
        same."""
        asks = isinstance(self.transport, HopStream) and self.transport.asks
        if self.transport is not None and not self.transport.is_closing() and not asks:
            (self.transport.resume_reading if reading else self.transport.pause_reading)()

    async def answer_head(self, method: bytes) -> ResponseHead:
        """The next head of the answer, also an interim one. Raises `ProxyError`."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise ProxyError(Code.PU02, known=f"the machine closed the connection without an answer{self._how}")
            if len(self._buffer) > HEAD_BYTES:
                raise ProxyError(Code.PU02, known="the machine's answer has a head of more than 64 KiB")
            await self._news()
        data = bytes(self._buffer[: end + 4])
        del self._buffer[: end + 4]
        return self._reader.read(data, method)

    def begin_body(self, head: ResponseHead, pass_on: Callable[[bytes], None]) -> bool:
        """Pass on the content that has come, and from now on the content that comes. Returns whether that was all.
        Raises `ProxyError`."""
        self._body, self._pass = _body_of(head), pass_on
        data, self._buffer = bytes(self._buffer), bytearray()
        self._pass_on(data, pass_on)
        if self._ended and isinstance(self._body, OpenBody):
            self._body.done = True
        return self._has_passed()

    async def rest_of_body(self) -> None:
        """Returns once the content is whole. Raises `ProxyError`."""
        while not self._has_passed():
            await self._news()

    def _has_passed(self) -> bool:
        """Whether all of the content is passed on. Raises `ProxyError` where it will never be."""
        body = self._body
        assert body is not None, "it has begun"
        if not body.done and self._error is not None:
            raise self._error
        if not body.done and self._ended:
            raise ProxyError(Code.PU02, known="the machine closed the connection in the middle of its answer")
        return body.done

    @property
    def trailers(self) -> tuple[Trailer, ...]:
        """The trailers behind the content, once that is whole."""
        return () if self._body is None else self._body.trailers

    async def small_body(self, head: ResponseHead, most: int) -> bytes:
        """The whole content, of at most `most` bytes. Raises `ProxyError`."""
        pieces = bytearray()

        def take(content: bytes) -> None:
            pieces.extend(content[: most + 1 - len(pieces)])
            if len(pieces) > most:
                self.abort()

        if not self.begin_body(head, take):
            await self.rest_of_body()
        if len(pieces) > most:
            raise ProxyError(Code.PA03, known=f"fly-replay: its body has more than {most >> 10} KiB")
        return bytes(pieces)

    def taken_over(self) -> bytes:
        """The bytes that came and were not passed on, of a connection that is no HTTP any more."""
        data, self._buffer = bytes(self._buffer), bytearray()
        return data

    def refuse(self, error: ProxyError) -> None:
        """Note that the gate of the machine's host does not let the request in."""
        self.refusal = self._error = error
        self.transport = None
        self._notify()

    @property
    def keeps_afar(self) -> bool:
        """Whether the connection leads to another host, whose gate can let it rest."""
        return self.bare and isinstance(self.transport, HopStream) and self.transport.keeps

    def rest_afar(self) -> None:
        """Have the gate keep the machine's connection, or close it where it cannot be used again."""
        if self.reusable and isinstance(self.transport, HopStream):
            self.transport.rest()
            self.transport = None
        else:
            self.close()

    @property
    def reusable(self) -> bool:
        transport, good = self.transport, not (self._ended or self._error or self._buffer)
        return transport is not None and good and not transport.get_write_buffer_size()

    def rest(self) -> None:
        self.rested = True
        self._source = self._pass = None
        self.may_read(reading=True)

    def abort(self) -> None:
        if self.transport is not None:
            reset(self.transport)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def _pass_on(self, data: bytes, pass_on: Callable[[bytes], None]) -> None:
        assert self._body is not None
        try:
            mine, rest = self._body.feed(data)
        except BadBody as error:
            self._fail(f"the machine's answer is malformed: {error}")
            return
        if mine:
            pass_on(mine)
        if rest:
            self._buffer += rest

    def _fail(self, why: str) -> None:
        if self._error is None:
            self._error = ProxyError(Code.PU02, known=why)
        self.abort()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _news(self) -> asyncio.Future[None]:
        """Done when something has come, or nothing will."""
        self._waiter = self._loop.create_future()
        return self._waiter


def _body_of(head: ResponseHead) -> MessageBody:
    if head.bodiless:
        return NoBody()
    if head.chunked:
        return ChunkedBody()
    return OpenBody() if head.length is None else CountedBody(head.length)


class Restful(Protocol):
    """A connection that may rest between two requests."""

    @property
    def reusable(self) -> bool:
        """Whether the connection can be used again: it is open, no bytes have come that nobody asked for, and all that
        was written has gone: of a machine that has yet to read a request nobody hears how it takes the next one."""

    def rest(self) -> None: ...

    def close(self) -> None: ...


R = TypeVar("R", bound=Restful)
_Key = tuple[MachineId, InstanceId | None, int, str]


def _key(target: ServiceTarget, whose: str) -> _Key:
    return target.machine.id, target.machine.instance, target.number, whose


class MachinePool(Generic[R]):
    """Connections that rest, by instance and service, and by `whose` requests they are for: the address of another
    host, or nothing. None outlives its instance, nor rests for more than `KEPT_S` seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: dict[_Key, list[tuple[float, R]]] = {}

    def __len__(self) -> int:
        """The number of instances' services of which connections are kept."""
        return len(self._kept)

    def take(self, target: ServiceTarget, whose: str = "") -> R | None:
        """The connection that rests for the shortest time; None without one."""
        key = _key(target, whose)
        kept = self._kept.get(key)
        while kept:
            since, connection = kept.pop()
            if connection.reusable and self._now() - since < KEPT_S:
                return connection
            connection.close()
        self._kept.pop(key, None)
        return None

    def keep(self, target: ServiceTarget, connection: R, whose: str = "") -> None:
        kept = self._kept.setdefault(_key(target, whose), [])
        if not connection.reusable or len(kept) >= _KEPT_OF_SERVICE:
            connection.close()
            return
        connection.rest()
        kept.append((self._now(), connection))

    def drop(self, machine_id: MachineId) -> None:
        """Close the connections to a machine that is closed, or has another instance."""
        for key in [key for key in self._kept if key[0] == machine_id]:
            for _, connection in self._kept.pop(key):
                connection.close()

    def sweep(self) -> None:
        """Close the connections that have rested for too long."""
        oldest = self._now() - KEPT_S
        for key, kept in list(self._kept.items()):
            for _, connection in (each for each in kept if each[0] <= oldest):
                connection.close()
            self._kept[key] = [each for each in kept if each[0] > oldest]
            if not self._kept[key]:
                del self._kept[key]
