"""The typed HTTP client, driven by the route table: the `Caller` between processes and for the command line; and the
retry of calls that came too often.

An error answer is raised as the error that the other side raised. `Unavailable` means that nothing was sent; `Fault`
that the call may or may not have taken effect. A call that may not be repeated never is. Streams, uploads and sockets
are `streaming`'s, which is imported by name when the first one is made: aiohttp would be half of the time of a command.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

import httptools
import msgspec

from hawker.api.call_metadata import (
    CALLER_HEADER,
    CALLER_TOKENS_HEADER,
    DEADLINE_HEADER,
    NODE_HEADER,
    read_behalf,
    written_deadline,
    written_name,
)
from hawker.api.caller import CallOptions
from hawker.api.failure import lost, no_address, not_understood, overdue, refusal, too_long, unreachable
from hawker.api.handlers import SocketChannel
from hawker.api.outgoing import Outgoing, RouteCodecs
from hawker.api.route import B, P, Q, R, Route, Socket, Stream, U, Unary, Upload
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import OverShare, RateLimited
from hawker.http.connection_pool import HttpTransport, NotSent
from hawker.http.message import AnswerTooLong, HttpResponse, OriginTls, origin_of
from hawker.log import Secret

if TYPE_CHECKING:
    from hawker.api import streaming
else:
    streaming = deferred("hawker.api.streaming")

T = TypeVar("T")

WITHIN_S = 120.0
_FIRST_S, _LONGEST_S, _GROWTH = 0.4, 3.0, 1.5


# Calls that come too often are made again: one that is refused with 429 was not begun, and a script of many
# commands need not know of rate limits. Pauses grow, with jitter, so that commands side by side do not meet again
# and again.


class RateLimitRetry:
    """`told` hears once, in words for a person, why it takes longer."""

    def __init__(self, clock: Clock, told: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._told = told

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns once it is not refused any more. Raises `RateLimited` after `WITHIN_S` seconds of
        refusals, and every other error of `attempt` at once."""
        deadline, pause_s = self._clock.monotonic() + WITHIN_S, _FIRST_S
        while True:
            wait_s = pause_s * (0.5 + self._clock.random())
            try:
                return await attempt()
            except (RateLimited, OverShare) as error:
                if self._clock.monotonic() + wait_s > deadline:
                    raise
                self._tell(str(error))
            await self._clock.sleep(wait_s)
            pause_s = min(pause_s * _GROWTH, _LONGEST_S)

    def _tell(self, why: str) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(why)


CONNECT_S = 5.0


class Streaming(Protocol):
    """What `streaming.StreamingClient` does of the calls that last; `outgoing` is written and has all its headers."""

    def lines(self, outgoing: Outgoing, item: type[R]) -> AbstractAsyncContextManager[AsyncIterator[R]]: ...

    async def upload(
        self, outgoing: Outgoing, data: AsyncIterator[bytes], timeout_s: float, most_bytes: int
    ) -> HttpResponse: ...

    def socket(self, outgoing: Outgoing, item: type[R]) -> AbstractAsyncContextManager[SocketChannel[Any, R]]: ...

    async def close(self) -> None: ...


class _Connections:
    """The ways to one node, opened when they are first needed."""

    def __init__(self, url: str, connect_s: float, most: int, tls: OriginTls | None) -> None:
        self._url, self._connect_s, self._most, self._tls = url, connect_s, most, tls
        origin = origin_of(url)
        self._unary = None
        if origin is not None:
            queue_s = CONNECT_S + connect_s
            self._unary = HttpTransport(origin, max_connections=most, connect_s=connect_s, queue_s=queue_s, tls=tls)
        self._streaming: Streaming | None = None

    @property
    def unary(self) -> HttpTransport:
        """Raises `BadRequest` when the URL is no address of a node."""
        if self._unary is None:
            raise no_address(self._url)
        return self._unary

    @property
    def streaming(self) -> Streaming:
        if self._streaming is None:
            self._streaming = streaming.StreamingClient(self._url, self._connect_s, self._most, self._tls)
        return self._streaming

    async def close(self) -> None:
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            await streaming.close()
        if self._unary is not None:
            await self._unary.close()


class Client:
    """Keeps connections open between calls; use it as a context manager, inside the event loop."""

    def __init__(
        self,
        url: str,
        token: Secret | None = None,
        *,
        connect_s: float = CONNECT_S,
        connections: int = 0,
        retry: RateLimitRetry | None = None,
        node: str = "",
        tls: OriginTls | None = None,
    ) -> None:
        """`connect_s` seconds at most are for opening a connection; `connections` are open at once, 0 for no limit; a
        unary call that comes too often is made again by `retry`, else it raises `RateLimited`. Between nodes, `node` is
        the one that calls, and `tls` how it shows that."""
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        if node:
            self._headers[NODE_HEADER] = node
        self._connections = _Connections(self._url, connect_s, connections, tls)
        self._retry = retry
        self._codecs: dict[str, RouteCodecs[Any, Any, Any, Any]] = {}

    def on_behalf(self, behalf: str) -> "Client":
        """The same connections, in the name of whom `Call.behalf` names; where the other side lets us say whose."""
        name, token_ids = read_behalf(behalf)
        named = copy(self)
        named._headers = {**self._headers, CALLER_HEADER: written_name(name)}
        if token_ids:
            named._headers[CALLER_TOKENS_HEADER] = ",".join(token_ids)
        return named

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Calls that are under way are lost; one that is made meanwhile opens a new connection."""
        await self._connections.close()

    async def call(self, route: Unary[P, Q, B, R], **options: Unpack[CallOptions[P, Q, B]]) -> R:
        limit_s = options.get("timeout_s") or route.timeout_s
        codecs = self._codecs_of(route)
        outgoing = codecs.outgoing(
            self._base,
            options.get("params"),
            options.get("query"),
            options.get("body"),
            options.get("nonce"),
            options.get("idempotency_key"),
            options.get("deploy_term"),
        )
        outgoing.headers[DEADLINE_HEADER] = written_deadline(limit_s)
        if self._retry is None:
            response = await self._answered(outgoing, limit_s, route.answer_bytes)
        else:
            response = await self._retry(lambda: self._answered(outgoing, limit_s, route.answer_bytes))
        metadata = options.get("metadata")
        if metadata is not None:
            metadata.hear(response.headers)
        return self._decoded(codecs, response)

    def stream(
        self, route: Stream[P, Q, B, R], *, params: P | None = None, query: Q | None = None, body: B | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[R]]:
        return self._connections.streaming.lines(self._whole(route, params, query, body), route.response)

    async def upload(
        self, route: Upload[P, Q, B, R], data: AsyncIterator[bytes], *, params: P | None = None, query: Q | None = None
    ) -> R:
        outgoing = self._whole(route, params, query, None)
        response = await self._connections.streaming.upload(outgoing, data, route.timeout_s, route.answer_bytes)
        return self._decoded(self._codecs_of(route), response)

    def socket(
        self, route: Socket[P, Q, B, R, U], body: B, *, params: P | None = None, query: Q | None = None
    ) -> AbstractAsyncContextManager[SocketChannel[U, R]]:
        return self._connections.streaming.socket(self._whole(route, params, query, body), route.response)

    async def _answered(self, outgoing: Outgoing, timeout_s: float, most_bytes: int) -> HttpResponse:
        """The response of a call that succeeded; raises the error of one that did not."""
        unary = self._connections.unary
        request = outgoing.encoded(unary.origin.authority, self._headers)
        try:
            response = await unary.request(outgoing.method, request, timeout_s, most_bytes)
        except NotSent as error:
            raise unreachable(self._url, error.__cause__) from error
        except TimeoutError as error:
            raise overdue(self._url) from error
        except AnswerTooLong as error:
            raise too_long(self._url, error) from error
        except (OSError, httptools.HttpParserError) as error:
            raise lost(self._url, error) from error
        if response.status >= 300:
            raise refusal(response.status, response.body)
        return response

    def _decoded(self, codecs: RouteCodecs[P, Q, B, R], response: HttpResponse) -> R:
        try:
            return codecs.answer.decode(response.body, response.headers)
        except msgspec.DecodeError as error:
            raise not_understood(self._url, error) from error

    def _whole(self, route: Route[P, Q, B, R], params: P | None, query: Q | None, body: B | None) -> Outgoing:
        outgoing = self._codecs_of(route).outgoing(self._base, params, query, body)
        outgoing.headers.update(self._headers)
        return outgoing

    @property
    def _base(self) -> str:
        """The path that the node's URL has."""
        return self._url[len(self._connections.unary.origin.prefix) :]

    def _codecs_of(self, route: Route[P, Q, B, R]) -> RouteCodecs[P, Q, B, R]:
        if route.name not in self._codecs:
            self._codecs[route.name] = RouteCodecs(route)
        return self._codecs[route.name]
