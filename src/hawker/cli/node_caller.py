"""The command line's way to a node. Most commands ask and are answered, by `Asker`; the client that streams, uploads
and converses is imported by those that do: it would take half of the time of a `machine list`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

from hawker.api.asker import Asker
from hawker.api.caller import Caller
from hawker.api.handlers import Channel
from hawker.api.marks import Marks
from hawker.api.route import B, P, Q, R, Socket, Stream, U, Unary, Upload
from hawker.cli.lazy import found
from hawker.log import Secret


class NodeCaller:
    """Keeps `Caller`."""

    def __init__(self, url: str, token: Secret | None) -> None:
        self._url, self._token = url, token
        self._asker = Asker(url, token)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

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
        return await self._asker.call(
            route,
            params=params,
            query=query,
            body=body,
            nonce=nonce,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
            marks=marks,
        )

    def stream(
        self, route: Stream[P, Q, B, R], *, params: P | None = None, query: Q | None = None, body: B | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[R]]:
        return self._client().stream(route, params=params, query=query, body=body)

    async def upload(
        self, route: Upload[P, Q, B, R], data: AsyncIterator[bytes], *, params: P | None = None, query: Q | None = None
    ) -> R:
        return await self._client().upload(route, data, params=params, query=query)

    def socket(
        self, route: Socket[P, Q, B, R, U], body: B, *, params: P | None = None, query: Q | None = None
    ) -> AbstractAsyncContextManager[Channel[U, R]]:
        return self._client().socket(route, body, params=params, query=query)

    def _client(self) -> Caller:
        client = found("hawker.api.client", "Client")(self._url, self._token)
        self._opened.push_async_callback(client.close)
        caller: Caller = client
        return caller
