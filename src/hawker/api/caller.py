"""How one part of Hawker calls another: the same calls over HTTP (`client`) or within the process (`in_process`)."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypedDict, Unpack

from hawker.api.call_metadata import CallMetadata
from hawker.api.handlers import SocketChannel
from hawker.api.route import B, P, Q, R, Socket, Stream, U, Unary, Upload
from hawker.errors import Unavailable


class CallOptions(TypedDict, Generic[P, Q, B], total=False):
    """What a unary call may be given beside its route; None is as good as left out."""

    params: P | None
    """The values of the path; left out, with no fields set."""
    query: Q | None
    """Left out, the route's defaults."""
    body: B | None
    """Left out, with no fields set."""
    nonce: str | None
    """The nonce of the machine's lease, needed while somebody holds it."""
    idempotency_key: str | None
    """A repeated call with the same key answers with what the first one made."""
    deploy_term: str | None
    """Of a deploy's coordinator: a machine's node refuses a change of an earlier term than it was told of."""
    timeout_s: float | None
    """Seconds until the call raises `DeadlineExceeded`, above 0; left out, the route's `timeout_s`."""
    metadata: CallMetadata | None
    """Filled in with what the answer says beside its body."""


class Caller(Protocol):
    """Every method raises the errors of the family, whichever side found them. Left-out `params`, `query` and `body`
    are those with no fields set."""

    async def call(self, route: Unary[P, Q, B, R], **options: Unpack[CallOptions[P, Q, B]]) -> R:
        """Raises `DeadlineExceeded` when its time runs out."""

    def stream(
        self, route: Stream[P, Q, B, R], *, params: P | None = None, query: Q | None = None, body: B | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[R]]:
        """Leaving the context ends the stream."""

    async def upload(
        self, route: Upload[P, Q, B, R], data: AsyncIterator[bytes], *, params: P | None = None, query: Q | None = None
    ) -> R: ...

    def socket(
        self, route: Socket[P, Q, B, R, U], body: B, *, params: P | None = None, query: Q | None = None
    ) -> AbstractAsyncContextManager[SocketChannel[U, R]]:
        """Opens the conversation with `body`. Leaving the context closes it."""


class LateCaller:
    """A caller that is there once the process answers, for what is built before that."""

    def __init__(self) -> None:
        self._caller: Caller | None = None

    def meet(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def caller(self) -> Caller:
        """Raises `Unavailable` before."""
        if self._caller is None:
            raise Unavailable("this node does not answer yet")
        return self._caller
