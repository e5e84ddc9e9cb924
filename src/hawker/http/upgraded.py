"""A connection that became a WebSocket, of which a piece is understood in a turn of the event loop."""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from hawker.fair.round_robin import Pieces, RoundRobin
from hawker.http.message import CERTIFIED
from hawker.http.untaken import is_deaf


class UpgradedConnection(WebSocketsSansIOProtocol):
    """A WebSocket that began as an `IncomingConnection`, whose place in the table it keeps. `turns` are those of its
    listener."""

    begun_as: Any = None
    certified = ""
    turns: RoundRobin
    _pieces: Pieces | None = None
    _frames = 0

    async def run_asgi(self) -> None:
        self.scope[CERTIFIED] = self.certified  # type: ignore[literal-required]
        await super().run_asgi()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self._pieces = Pieces(self.transport, self.turns, address, self._understand)
        self.transport = _PacedTransport(self.transport, self._pieces)  # type: ignore[assignment]  # it looks like one

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated or self._pieces is None:  # its head, which is bounded
            super().data_received(data)
        else:
            self._pieces.take(data)

    def _understand(self, piece: bytes) -> int:
        self._frames = 0
        super().data_received(piece)
        return self._frames

    def handle_events(self) -> None:
        self._frames = len(self.conn.events)
        super().handle_events()

    def keepalive_timeout(self) -> None:
        """Close the connection only if the client's kernel is silent, too. A client that rests answers no ping: its
        reader may be busy, or its answer may lie behind what its command has yet to read. Its kernel acknowledges the
        ping all the same."""
        if is_deaf(self.transport, self.ping_timeout or 0.0):
            super().keepalive_timeout()
        else:
            self.pong_timer = None
            self.send_keepalive_ping()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pieces is not None:
            self._pieces.drop()
        if self.begun_as is not None:
            self.begun_as.end()
        super().connection_lost(exc)


class _PacedTransport:
    """The transport as uvicorn has it: that there is room for more does not say that more is read."""

    def __init__(self, transport: asyncio.Transport, pieces: Pieces) -> None:
        self._transport = transport
        self._pieces = pieces

    def pause_reading(self) -> None:
        self._pieces.want(False)

    def resume_reading(self) -> None:
        self._pieces.want(True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
