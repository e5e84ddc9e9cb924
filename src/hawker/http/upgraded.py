"""A connection that became a WebSocket, bounded in how much of it is understood in one turn of the event loop.

uvicorn understands all that one read brings: a quarter of a megabyte may be forty thousand pings. Here it is done in
pieces, one of each address in a turn, and nothing is read meanwhile.
"""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from hawker.fair.connections import key_of
from hawker.fair.round_robin import RoundRobin
from hawker.http.message import CERTIFIED

SMALL_PIECE, LARGE_PIECE = 1024, 8 * 1024
_FEW = 4  # frames of a piece: the next one may be larger


class UpgradedConnection(WebSocketsSansIOProtocol):
    """A WebSocket that began as an `IncomingConnection`, whose place it keeps. `turns` are those of its listener."""

    begun_as: Any = None
    certified = ""
    turns: RoundRobin
    _left = b""  # what was read and is not understood yet
    _turn: "asyncio.Future[None] | None" = None
    _piece = SMALL_PIECE
    _wanted = True  # uvicorn wants more

    async def run_asgi(self) -> None:
        self.scope[CERTIFIED] = self.certified  # type: ignore[literal-required]
        await super().run_asgi()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = _PacedTransport(self.transport, self)  # type: ignore[assignment]  # all that is called of it

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:  # its head, which is bounded
            super().data_received(data)
            return
        self._left += data
        self._go_on()

    def want(self, more: bool) -> None:
        """Whether uvicorn wants to read. It does once the application has taken what came."""
        self._wanted = more
        if more:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = b""
        if self._turn is not None:
            self._turn.cancel()
        if self.begun_as is not None:
            self.begun_as.end()
        super().connection_lost(exc)

    def _understand(self) -> None:
        piece, self._left = self._left[: self._piece], self._left[self._piece :]
        super().data_received(piece)
        self._go_on()

    def handle_events(self) -> None:
        few = len(self.conn.events) <= _FEW
        self._piece = min(2 * self._piece, LARGE_PIECE) if few else SMALL_PIECE
        super().handle_events()

    def _go_on(self) -> None:
        """With what was read, or with reading."""
        paced: Any = self.transport
        if not self._wanted or self._turn is not None or self.transport.is_closing():
            return
        if self._left:
            paced.read(False)
            self._turn = self.turns.next_turn(key_of(self.client[0] if self.client else ""))
            self._turn.add_done_callback(self._on_turn)
        else:
            paced.read(True)

    def _on_turn(self, turn: "asyncio.Future[None]") -> None:
        self._turn = None
        if not turn.cancelled():
            self._understand()


class _PacedTransport:
    """The transport as uvicorn has it: whether it is read is its connection's to say."""

    def __init__(self, transport: asyncio.Transport, connection: UpgradedConnection) -> None:
        self._transport = transport
        self._connection = connection
        self._reads = True

    def pause_reading(self) -> None:
        self._connection.want(False)
        self.read(False)

    def resume_reading(self) -> None:
        self._connection.want(True)

    def read(self, more: bool) -> None:
        if more != self._reads and not self._transport.is_closing():
            self._reads = more
            (self._transport.resume_reading if more else self._transport.pause_reading)()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
