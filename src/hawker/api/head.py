"""A deadline for a request's head: a client that sends it byte by byte, or never, does not keep a connection for ever.

uvicorn knows a limit for idle connections only. Bodies are bounded by size, and answers by the calls themselves.
"""

import asyncio
from asyncio import TimerHandle

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 15.0


class HeadDeadline(HttpToolsProtocol):
    """Closes a connection whose next request is not told within `head_s` of the connection or of its first byte."""

    head_s = HEAD_S
    _overdue: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._overdue is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._overdue = self.loop.call_later(self.head_s, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


def within(seconds: float) -> type[HeadDeadline]:
    """The protocol with another deadline."""
    return type("HeadDeadline", (HeadDeadline,), {"head_s": seconds})
