"""The client for a program that asks a thing or two and ends: a connection for each call, and nothing to import but
the parser that the server uses too. `Client` keeps connections, streams and converses, and takes longer to import than
most commands take to run.
"""

import ssl
from urllib.parse import SplitResult, urlsplit

import anyio
import httptools
import msgspec
from anyio.abc import ByteStream

from hawker.api.loss import lost, not_understood, overdue, refusal, unreachable
from hawker.api.marks import Marks
from hawker.api.outgoing import Outgoing, RouteCodecs, written_request
from hawker.api.patience import patiently
from hawker.api.route import B, P, Q, R, Unary
from hawker.clock import Clock, SystemClock
from hawker.errors import BadRequest
from hawker.log import Secret

CONNECT_S = 5.0
_PORTS = {"http": 80, "https": 443}


class Asker:
    """The part of `Caller` that has one question and one answer. Waits when the node says that calls come too often."""

    def __init__(self, url: str, token: Secret | None = None, clock: Clock | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._clock = clock or SystemClock()

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
        codecs = RouteCodecs(route)
        outgoing = codecs.outgoing(self._url, params, query, body, nonce, idempotency_key)
        answer = await patiently(lambda: self._answer(outgoing, timeout_s or route.timeout_s), self._clock)
        if marks is not None:
            marks.hear(answer.headers)
        try:
            return codecs.answer.decode(answer.body, answer.headers)
        except msgspec.DecodeError as error:
            raise not_understood(self._url, error) from error

    async def _answer(self, outgoing: Outgoing, timeout_s: float) -> "_Answer":
        """Of a call that succeeded; raises the error of one that did not."""
        answer = await self._exchange(outgoing, timeout_s)
        if answer.status >= 300:
            raise refusal(answer.status, answer.body)
        return answer

    async def _exchange(self, outgoing: Outgoing, timeout_s: float) -> "_Answer":
        """Says in the family's words what went wrong below the call."""
        place = _place(outgoing.url, self._url)
        sent = _written(outgoing, place, self._token)
        try:
            with anyio.fail_after(timeout_s):
                async with await self._connected(place) as stream:
                    await stream.send(sent)
                    return await _received(stream)
        except TimeoutError as error:
            raise overdue(self._url) from error
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, httptools.HttpParserError) as error:
            raise lost(self._url, error) from error

    async def _connected(self, place: SplitResult) -> ByteStream:
        assert place.hostname is not None
        context = ssl.create_default_context() if place.scheme == "https" else None
        port = place.port or _PORTS[place.scheme]
        with anyio.fail_after(CONNECT_S):
            try:
                if context is None:
                    return await anyio.connect_tcp(place.hostname, port)
                return await anyio.connect_tcp(place.hostname, port, ssl_context=context, tls_standard_compatible=False)
            except TimeoutError:
                raise
            except (OSError, UnicodeError) as error:
                raise unreachable(self._url) from error


class _Answer:
    """What has come of an answer; the parser calls the methods that begin with `on_`."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = False
        self._pieces: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.whole, self.body = True, b"".join(self._pieces)

    @property
    def ends_with_connection(self) -> bool:
        """As answers of servers do that say neither how long they are nor that they come in parts."""
        return bool(self.headers) and not self.headers.keys() & {"content-length", "transfer-encoding"}


async def _received(stream: ByteStream) -> _Answer:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    while not answer.whole:
        try:
            parser.feed_data(await stream.receive())
        except anyio.EndOfStream:
            if not answer.ends_with_connection:
                raise
            answer.on_message_complete()
    answer.status = parser.get_status_code()
    return answer


def _place(url: str, base: str) -> SplitResult:
    """Where a call goes. Raises `BadRequest` when `base` is no address of a node."""
    try:
        place = urlsplit(url)
        if place.scheme in _PORTS and place.hostname and place.port != 0:
            return place
    except ValueError:
        pass
    raise BadRequest(f"{base!r} is not a node's address, such as http://127.0.0.1:4280")


def _written(outgoing: Outgoing, place: SplitResult, token: Secret | None) -> bytes:
    headers = {"connection": "close"} | ({} if token is None else {"authorization": f"Bearer {token.reveal()}"})
    origin = f"{place.scheme}://{place.netloc}"
    return written_request(outgoing, origin, place.netloc.rpartition("@")[2], headers)
