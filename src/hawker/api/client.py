"""The typed HTTP client, driven by the route table: the `Caller` between processes and for the command line.

An error answer is raised as the error that the other side raised. `Unavailable` means that nothing was sent; `Fault`
that the call may or may not have taken effect.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from types import TracebackType
from typing import Any, Generic

import aiohttp
import anyio
import httptools
import msgspec
from yarl import URL

from hawker.api.codec import encode_json
from hawker.api.deadline import DEADLINE_HEADER, written_deadline
from hawker.api.failure import error_in, is_failed
from hawker.api.handlers import Channel
from hawker.api.kept import Kept, Unsent, place_in
from hawker.api.loss import lost, not_understood, overdue, refusal, unreachable
from hawker.api.marks import CALLER_HEADER, Marks, written_name
from hawker.api.outgoing import Outgoing, RouteCodecs, written_request
from hawker.api.route import B, P, Q, R, Route, Socket, Stream, U, Unary, Upload
from hawker.errors import Fault, Unavailable
from hawker.log import Secret

CONNECT_S = 5.0
STREAM_SILENCE_S = 60.0  # a living node sends an empty line every 15 s
MAX_LINE_BYTES = 16 * 1024 * 1024


class _Pool:
    """Connections that are opened when they are first needed; at most `most` at once, any number for 0."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._opened: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self._most))
        return self._opened

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()


class Client:
    """Keeps connections open between calls; use it as a context manager, inside the event loop."""

    def __init__(
        self, url: str, token: Secret | None = None, *, connect_s: float = CONNECT_S, connections: int = 0
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        self._connect_s = connect_s
        self._pool = _Pool(connections)
        self._place = place_in(self._url)
        self._kept = (
            None
            if self._place is None
            else Kept(self._place, most=connections, connect_s=connect_s, patience_s=CONNECT_S + connect_s)
        )
        self._codecs: dict[str, RouteCodecs[Any, Any, Any, Any]] = {}

    def on_behalf(self, caller: str) -> "Client":
        """The same connections, in this caller's name; where the other side lets us say whose."""
        named = copy(self)
        named._headers = {**self._headers, CALLER_HEADER: written_name(caller)}
        return named

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Calls that are under way are lost; one that is made meanwhile opens a new connection."""
        await self._pool.close()
        if self._kept is not None:
            await self._kept.close()

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
        codecs = self._codecs_of(route)
        outgoing = codecs.outgoing(self._url, params, query, body, nonce, idempotency_key)
        limit_s = timeout_s or route.timeout_s
        outgoing.headers[DEADLINE_HEADER] = written_deadline(limit_s)
        if self._kept is None or self._place is None:
            return await self._answered(codecs, outgoing, limit_s, marks)
        request = written_request(outgoing, self._place.origin, self._place.name, self._headers)
        with self._lost():
            answer = await self._kept.ask(outgoing.method, request, limit_s)
            if answer.status >= 300:
                raise refusal(answer.status, answer.body)
            if marks is not None:
                marks.hear(answer.headers)
            return codecs.answer.decode(answer.body, answer.headers)

    @asynccontextmanager
    async def stream(
        self, route: Stream[P, Q, B, R], *, params: P | None = None, query: Q | None = None, body: B | None = None
    ) -> AsyncIterator[AsyncIterator[R]]:
        outgoing = self._codecs_of(route).outgoing(self._url, params, query, body)
        with self._lost():
            response = await self._open(outgoing, self._patience(sock_read=STREAM_SILENCE_S))
        try:
            yield self._items(msgspec.json.Decoder(route.response), response)
        finally:
            response.close()

    async def upload(
        self,
        route: Upload[P, Q, B, R],
        data: AsyncIterator[bytes],
        *,
        params: P | None = None,
        query: Q | None = None,
    ) -> R:
        codecs = self._codecs_of(route)
        outgoing = codecs.outgoing(self._url, params, query, None)
        return await self._answered(codecs, outgoing.carrying(data), route.timeout_s)

    @asynccontextmanager
    async def socket(
        self, route: Socket[P, Q, B, R, U], body: B, *, params: P | None = None, query: Q | None = None
    ) -> AsyncIterator[Channel[U, R]]:
        outgoing = self._codecs_of(route).outgoing(self._url, params, query, body)
        with self._lost():
            with anyio.fail_after(max(self._connect_s, CONNECT_S)):
                socket = await self._pool.session().ws_connect(
                    _as_written(outgoing), headers=self._headers, heartbeat=20.0
                )
        try:
            channel: ClientChannel[U, R] = ClientChannel(socket, msgspec.json.Decoder(route.response))
            await channel.send_bytes(outgoing.data)
            yield channel
        finally:
            await socket.close()

    async def _answered(
        self, codecs: RouteCodecs[Any, Any, Any, R], outgoing: Outgoing, timeout_s: float, marks: Marks | None = None
    ) -> R:
        with self._lost():
            response = await self._open(outgoing, self._patience(total=timeout_s))
            async with response:
                if marks is not None:
                    marks.hear(response.headers)
                return codecs.answer.decode(await response.read(), response.headers)

    def _patience(self, total: float | None = None, sock_read: float | None = None) -> aiohttp.ClientTimeout:
        """Both the wait for a free connection and for a new one are bounded: nothing was sent when they run out."""
        return aiohttp.ClientTimeout(
            total=total, connect=CONNECT_S + self._connect_s, sock_connect=self._connect_s, sock_read=sock_read
        )

    async def _open(self, outgoing: Outgoing, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The response of a call that succeeded, its body unread; raises the error of one that did not."""
        response = await self._pool.session().request(
            outgoing.method,
            _as_written(outgoing),
            data=outgoing.data or None,
            headers={**self._headers, **outgoing.headers},
            timeout=timeout,
            expect100=outgoing.expects_consent,
            allow_redirects=False,
        )
        if response.status >= 300:
            async with response:
                raise refusal(response.status, await response.read())
        return response

    def _codecs_of(self, route: Route[P, Q, B, R]) -> RouteCodecs[P, Q, B, R]:
        if route.name not in self._codecs:
            self._codecs[route.name] = RouteCodecs(route)
        return self._codecs[route.name]

    async def _items(self, decoder: "msgspec.json.Decoder[R]", response: aiohttp.ClientResponse) -> AsyncIterator[R]:
        lines = _lines(response)
        while True:
            with self._lost():
                line = await anext(lines, None)
                if line is None:
                    return
                if is_failed(line):
                    raise error_in(line)
                item = decoder.decode(line)
            yield item

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Says in the family's words what went wrong below the call."""
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, Unsent) as error:
            raise unreachable(self._url) from error
        except TimeoutError as error:
            raise overdue(self._url) from error
        except aiohttp.WSServerHandshakeError as error:
            raise refusal(error.status, b"the conversation was refused") from error
        except (aiohttp.ClientError, OSError, httptools.HttpParserError) as error:
            raise lost(self._url, error) from error
        except msgspec.DecodeError as error:
            raise not_understood(self._url, error) from error


class ClientChannel(Generic[U, R]):
    """The client's end of a socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, decoder: "msgspec.json.Decoder[R]") -> None:
        self._socket = socket
        self._decoder = decoder

    async def send(self, message: U) -> None:
        await self.send_bytes(encode_json(message))

    async def send_bytes(self, message: bytes) -> None:
        try:
            await self._socket.send_str(message.decode())
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("the node has gone") from error

    async def receive(self) -> R | None:
        """Raises the error that ended the conversation, if one did."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            return None
        data = message.data.encode()
        if is_failed(data):
            raise error_in(data)
        return self._decoder.decode(data)


def _as_written(outgoing: Outgoing) -> URL:
    return URL(outgoing.url, encoded=True)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines without their ends, and without the empty ones that only say that the node lives."""
    held = b""
    async for chunk in response.content.iter_any():
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(held) > MAX_LINE_BYTES:
            raise Fault("the node sent a line that does not end")
