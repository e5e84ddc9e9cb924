"""The calls that last: streams of lines, uploads and sockets, over aiohttp. `client` imports this module by name, so
that what only asks and is answered does not load it.
"""

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic

import aiohttp
import anyio
import msgspec
from yarl import URL

from hawker.api.call_metadata import PROBLEM_HEADER
from hawker.api.codec import encode_json
from hawker.api.failure import error_in, is_failed, lost, not_understood, overdue, refusal, too_long, unreachable
from hawker.api.outgoing import Outgoing
from hawker.api.route import MAX_REMARK_BYTES, R, U
from hawker.errors import Fault, Unavailable
from hawker.fair.sessions import kept_session
from hawker.http.message import AnswerTooLong, HttpResponse, OriginTls, origin_of

SILENCE_S = 60.0  # a living node sends an empty line every 15 s, and in a conversation a ping every 20 s
MAX_LINE_BYTES = 16 * 1024 * 1024
_QUEUE_S = 5.0
_PATIENCE = aiohttp.ClientWSTimeout(ws_receive=SILENCE_S, ws_close=10.0)
"""No pings of our own: who does not receive for a while would not see the answers."""


class StreamingClient:
    """Keeps `Streaming`. At most `connections` are open at once, any number for 0; opening one takes at most
    `connect_s` seconds; `tls` is for an origin that is not spoken to as everybody does."""

    def __init__(self, url: str, connect_s: float, connections: int, tls: OriginTls | None = None) -> None:
        self._url = url
        self._tls = tls
        origin = origin_of(url)
        self._prefix = url if origin is None else origin.prefix
        self._connect_s = connect_s
        self._connections = connections
        self._opened: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    @asynccontextmanager
    async def lines(self, outgoing: Outgoing, item: type[R]) -> AsyncIterator[AsyncIterator[R]]:
        with self._errors():
            response = await self._open(outgoing, outgoing.data or None, self._timeout(sock_read=SILENCE_S))
        try:
            yield self._items(msgspec.json.Decoder(item), response)
        finally:
            response.close()

    async def upload(
        self, outgoing: Outgoing, data: AsyncIterator[bytes], timeout_s: float, most_bytes: int
    ) -> HttpResponse:
        """`data` is read only once the node has agreed to take it."""
        with self._errors():
            response = await self._open(outgoing, data, self._timeout(total=timeout_s), expect100=True)
            async with response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return HttpResponse(response.status, headers, await _whole(response, most_bytes))

    @asynccontextmanager
    async def socket(self, outgoing: Outgoing, item: type[R]) -> AsyncIterator["ClientChannel[Any, R]"]:
        with self._errors():
            with anyio.fail_after(max(self._connect_s, _QUEUE_S)):
                headers = {name: value for name, value in outgoing.headers.items() if name != "content-type"}
                socket = await self._session().ws_connect(
                    self._url_of(outgoing), headers=headers, timeout=_PATIENCE, **self._secured()
                )
        try:
            channel: ClientChannel[Any, R] = ClientChannel(socket, msgspec.json.Decoder(item))
            await channel.send_bytes(outgoing.data)
            yield channel
        finally:
            await socket.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = kept_session(self._connections)
        return self._opened

    def _secured(self) -> dict[str, Any]:
        return {} if self._tls is None else {"ssl": self._tls.context(), "server_hostname": self._tls.name}

    def _timeout(self, total: float | None = None, sock_read: float | None = None) -> aiohttp.ClientTimeout:
        """Both the wait for a free connection and for a new one are bounded: nothing was sent when they run out."""
        return aiohttp.ClientTimeout(
            total=total, connect=_QUEUE_S + self._connect_s, sock_connect=self._connect_s, sock_read=sock_read
        )

    async def _open(
        self, outgoing: Outgoing, data: Any, timeout: aiohttp.ClientTimeout, *, expect100: bool = False
    ) -> aiohttp.ClientResponse:
        """The response of a call that succeeded, its body unread; raises the error of one that did not."""
        response = await self._session().request(
            outgoing.method,
            self._url_of(outgoing),
            data=data,
            headers=outgoing.headers,
            timeout=timeout,
            expect100=expect100,
            allow_redirects=False,
            **self._secured(),
        )
        if response.status >= 300:
            async with response:
                raise refusal(response.status, await _whole(response, MAX_REMARK_BYTES))
        return response

    def _url_of(self, outgoing: Outgoing) -> URL:
        return URL(f"{self._prefix}{outgoing.target}", encoded=True)

    async def _items(self, decoder: "msgspec.json.Decoder[R]", response: aiohttp.ClientResponse) -> AsyncIterator[R]:
        lines = _lines(response)
        while True:
            with self._errors():
                line = await anext(lines, None)
                if line is None:
                    return
                if is_failed(line):
                    raise error_in(line)
                item = decoder.decode(line)
            yield item

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Says in the family's words what went wrong below the call."""
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise unreachable(self._url, error.__cause__) from error
        except TimeoutError as error:
            raise overdue(self._url) from error
        except aiohttp.WSServerHandshakeError as error:
            raise refusal(error.status, _problem(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise lost(self._url, error) from error
        except AnswerTooLong as error:
            raise too_long(self._url, error) from error
        except msgspec.DecodeError as error:
            raise not_understood(self._url, error) from error


def _problem(error: aiohttp.WSServerHandshakeError) -> bytes:
    """The body of a refused handshake, from the header that repeats it."""
    shown = error.headers.get(PROBLEM_HEADER, "") if error.headers else ""
    try:
        return b64decode(shown, validate=True) or b"the conversation was refused"
    except ValueError:
        return b"the conversation was refused"


class ClientChannel(Generic[U, R]):
    """The client's end of a socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, decoder: "msgspec.json.Decoder[R]") -> None:
        self._socket = socket
        self._decoder = decoder

    async def send(self, message: U) -> None:
        """Raises `Unavailable` when the node has gone."""
        await self.send_bytes(encode_json(message))

    async def send_bytes(self, message: bytes) -> None:
        """A message that is JSON already. Raises `Unavailable` when the node has gone."""
        try:
            await self._socket.send_str(message.decode())
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("the node has gone") from error

    async def receive(self) -> R | None:
        """None when it has ended, or the node has said nothing for `SILENCE_S`. Raises the error that ended it, if one
        did."""
        try:
            message = await self._socket.receive()
        except TimeoutError:
            return None
        if message.type is not aiohttp.WSMsgType.TEXT:
            return None
        data = message.data.encode()
        if is_failed(data):
            raise error_in(data)
        return self._decoder.decode(data)


async def _whole(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """The body. Raises `AnswerTooLong`; the connection is closed then, since its body was not read to the end."""
    pieces, received_bytes = [], 0
    async for piece in response.content.iter_any():
        received_bytes += len(piece)
        if received_bytes > most_bytes:
            response.close()
            raise AnswerTooLong(most_bytes)
        pieces.append(piece)
    return b"".join(pieces)


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
