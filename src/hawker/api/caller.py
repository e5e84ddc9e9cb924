"""How one part of Hawker calls another: the same calls over HTTP (`client`) or within the process (`local`)."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hawker.api.handlers import Channel
from hawker.api.marks import Marks
from hawker.api.route import B, P, Q, R, Socket, Stream, U, Unary, Upload


class Caller(Protocol):
    """Every method raises the errors of the family, whichever side found them. Left-out `params`, `query` and `body`
    are those with no fields set."""

    async def call(
        self,
        route: Unary[P, Q, B, R],
        *,
        params: P | None = None,
        query: Q | None = None,
        body: B | None = None,
        nonce: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        marks: Marks | None = None,
    ) -> R:
        """`timeout_s` overrides the route's. Raises `DeadlineExceeded` when it runs out. `marks` are filled in with
        what the answer says beside its body."""

    def stream(
        self, route: Stream[P, Q, B, R], *, params: P | None = None, query: Q | None = None, body: B | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[R]]:
        """Leaving the context ends the stream."""

    async def upload(
        self,
        route: Upload[P, Q, B, R],
        data: AsyncIterator[bytes],
        *,
        params: P | None = None,
        query: Q | None = None,
    ) -> R: ...

    def socket(
        self, route: Socket[P, Q, B, R, U], body: B, *, params: P | None = None, query: Q | None = None
    ) -> AbstractAsyncContextManager[Channel[U, R]]:
        """Opens the conversation with `body`. Leaving the context closes it."""
