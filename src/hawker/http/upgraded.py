"""A connection that became a WebSocket."""

from typing import Any

from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from hawker.http.message import CERTIFIED

assert AutoWebSocketsProtocol is not None


class UpgradedConnection(AutoWebSocketsProtocol):  # type: ignore[misc,valid-type]
    """A WebSocket that began as an `IncomingConnection`, whose place it keeps."""

    begun_as: Any = None
    certified = ""

    async def run_asgi(self) -> None:
        self.scope[CERTIFIED] = self.certified
        await super().run_asgi()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.begun_as is not None:
            self.begun_as.end()
        super().connection_lost(exc)
