"""A connection as a server sees it, bounded before anything is kept of it: its place among the others, the bytes and
the time of each head, requests that wait behind each other, and a client that does not take its answers.

uvicorn bounds none of these. Bodies are bounded by whoever reads them.
"""

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hawker.deferred import deferred
from hawker.fair.connections import ConnectionTable
from hawker.fair.round_robin import RoundRobin
from hawker.http.message import CERTIFIED
from hawker.http.untaken import UNTAKEN_S
from hawker.ids import NODE_DOMAIN

if TYPE_CHECKING:
    from hawker.http import upgraded
else:
    upgraded = deferred("hawker.http.upgraded")

HEAD_S = 15.0
HEAD_BYTES = 64 * 1024
PIPELINED = 16
UNREAD_PER_S = 256 * 1024  # bytes of a body that nobody reads, because its request is answered
_PIECE = 16 * 1024
_ENDS = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
_CROWDED = "too many connections: close some, or try again in a moment"


class IncomingConnection(HttpToolsProtocol):
    """Closes a connection whose next head is not told within `head_s` seconds of the connection or of its first byte,
    or is over `HEAD_BYTES`. `table` is the listener's own."""

    head_s: ClassVar[float] = HEAD_S
    table: ClassVar[ConnectionTable | None] = None
    _overdue: TimerHandle | None = None
    _untaken: TimerHandle | None = None
    _slowed: TimerHandle | None = None
    _in_body = False
    _told_bytes = 0
    _in_head = True
    _refused = False
    _certified = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._certified = _certified(transport)
        if self.table is not None and not self.table.admit(self, self.client[0] if self.client else ""):
            self._refuse(503, _CROWDED, b"retry-after: 1\r\n")
            return
        self._await_head()

    def give_up(self) -> None:
        """Closes the connection at once. Keeps `fair.connections.Closable`."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read the bytes in small pieces, so that a head is known to be too long before much of it is kept."""
        for start in range(0, len(data), _PIECE):
            if self._refused or self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            piece = data[start : start + _PIECE]
            self._told_bytes += len(piece) if self._in_head else 0
            super().data_received(piece)
            if self._in_head and self._told_bytes > HEAD_BYTES:
                self._refuse(431, f"the head of a request has at most {HEAD_BYTES} bytes")
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._slow_down(len(data))

    def _slow_down(self, count: int) -> None:
        """A body that is refused by its head alone would cost as much as one that is taken, and no rate counts it."""
        self.flow.pause_reading()
        self._slowed = self.loop.call_later(count / UNREAD_PER_S, self._go_on)

    def _go_on(self) -> None:
        self._slowed = None
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CERTIFIED] = self._certified  # type: ignore[literal-required]
        self._in_head, self._told_bytes = True, 0
        if self._overdue is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head, or of a trailer, which is kept beside the head."""
        if not self._in_head:
            self._told_bytes += len(name) + len(value)
            if self._told_bytes > HEAD_BYTES:
                self.transport.abort()
                return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_head, self._in_body = False, True
        if self.table is not None:
            self.table.work(self)
        if len(self.pipeline) >= PIPELINED:
            self.transport.abort()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.table is not None and self.cycle.response_complete:
            self.table.rest(self)

    def handle_websocket_upgrade(self) -> None:
        """The connection keeps its place for as long as the conversation lasts."""
        super().handle_websocket_upgrade()
        talk: Any = self.transport.get_protocol()
        if isinstance(talk, upgraded.UpgradedConnection):
            talk.begun_as, talk.certified = self, self._certified

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._untaken is None:
            self._untaken = self.loop.call_later(UNTAKEN_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()
        super().connection_lost(exc)

    def end(self) -> None:
        """Give the connection's place back, and stop all its timers."""
        self._stop_waiting()
        self._taken()
        if self._slowed is not None:
            self._slowed.cancel()
        if self.table is not None:
            self.table.release(self)

    def _refuse(self, status: int, text: str, more: bytes = b"") -> None:
        """An answer from here, after which nothing is heard any more."""
        self._refused = True
        body = text.encode()
        head = b"HTTP/1.1 %d \r\ncontent-length: %d\r\n%s%s\r\n" % (status, len(body), more, _ENDS)
        self.transport.write(head + body)
        self.transport.close()

    def _await_head(self) -> None:
        self._overdue = self.loop.call_later(self.head_s, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _taken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None


def _certified(transport: asyncio.Transport) -> str:
    tls = transport.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert()
    names = certificate.get("subjectAltName", ()) if certificate else ()
    return next((name.removesuffix(NODE_DOMAIN) for kind, name in names if kind == "DNS"), "")


def incoming(table: ConnectionTable | None, head_s: float = HEAD_S) -> type[IncomingConnection]:
    """The protocol for connections of one listener, with its `table` and `head_s` seconds for each head."""
    return type("IncomingConnection", (IncomingConnection,), {"table": table, "head_s": head_s})


def conversations() -> Callable[..., asyncio.Protocol]:
    """The protocol for connections of one listener that ask for a WebSocket. Until the first of them, no module of
    WebSockets is imported."""
    turns = RoundRobin()

    def conversation(**options: Any) -> asyncio.Protocol:
        upgraded_one = upgraded.UpgradedConnection(**options)
        upgraded_one.turns = turns
        return upgraded_one

    return conversation
