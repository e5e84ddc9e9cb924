"""One HTTP request as it comes in: its headers, its body up to a limit, and the typed `Call` for the handler."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic
from urllib.parse import parse_qsl

import anyio
import msgspec

from hawker.api.call_metadata import DEADLINE_HEADER, read_deadline
from hawker.api.codec import BodyCodec, Receive, Scope
from hawker.api.grant import Grant
from hawker.api.query import QueryCodec
from hawker.api.route import B, Call, P, Q, Route
from hawker.errors import BadRequest, DeadlineExceeded, TooLarge, Unavailable

BODY_DEADLINE_S = 30.0
MAX_QUERY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Incoming:
    """What came with a request beside its body. `params` are those of the path, decoded; `query` is undecoded, at most
    `MAX_QUERY_BYTES`; `headers` are by their names in lower case; `receive` gives the body; `request_id` is a ULID that
    the answer carries; `source` is the client's address, empty when it is not known."""

    params: Mapping[str, str]
    query: bytes
    headers: Mapping[bytes, bytes]
    receive: Receive
    request_id: str
    source: str = ""

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


def incoming(scope: Scope, params: Mapping[str, str], receive: Receive, request_id: str) -> Incoming:
    source = (scope.get("client") or ("",))[0]
    return Incoming(params, scope["query_string"], dict(scope["headers"]), receive, request_id, source)


class CallReader(Generic[P, Q, B]):
    """Makes the calls of one route; its codecs are built once."""

    def __init__(self, route: Route[P, Q, B, Any], max_body_bytes: int) -> None:
        self._params = route.params
        self._query = QueryCodec(route.query)
        self._body = BodyCodec(route.body, strict=route.strict, optional=route.body_optional)
        self._takes_body = route.body is not NoneType
        self._max_body_bytes = max_body_bytes

    async def with_body(self, request: Incoming, grant: Grant) -> Call[P, Q, B]:
        """Reads the body to its end, if the route has one. Raises `TooLarge`, `BadRequest`, `Unprocessable`."""
        data = await read_body(request, self._max_body_bytes) if self._takes_body else b""
        return self.with_data(request, grant, data)

    def with_data(self, request: Incoming, grant: Grant, data: bytes) -> Call[P, Q, B]:
        return Call(
            params=_params(self._params, request.params),
            query=self._query.decode(_pairs(request.query)),
            body=self._body.decode(data),
            grant=grant,
            request_id=request.request_id,
            nonce=request.header(b"fly-machine-lease-nonce"),
            idempotency_key=request.header(b"idempotency-key"),
            version=request.header(b"hawker-version"),
            deadline_s=read_deadline(request.header(DEADLINE_HEADER.encode())),
        )


def _params(kind: type[P], given: Mapping[str, str]) -> P:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"path {error}") from error


def _pairs(query: bytes) -> list[tuple[str, str]]:
    if not query:
        return []
    if len(query) > MAX_QUERY_BYTES:
        raise BadRequest(f"the query string is longer than {MAX_QUERY_BYTES} bytes")
    return parse_qsl(query.decode("latin-1"), keep_blank_values=True)


async def read_body(request: Incoming, limit: int) -> bytes:
    """The whole body. Raises `TooLarge` as soon as it is known to be longer than `limit`."""
    if _announced(request) > limit:
        raise too_large(limit)
    chunks: list[bytes] = []
    left = limit
    async for chunk in body_chunks(request, BODY_DEADLINE_S):
        left -= len(chunk)
        if left < 0:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _announced(request: Incoming) -> int:
    length = request.headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")


async def body_chunks(request: Incoming, chunk_deadline_s: float) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises `Unavailable` when the client goes away before its end."""
    more = True
    while more:
        message = None
        with anyio.move_on_after(chunk_deadline_s):
            message = await request.receive()
        if message is None:
            raise DeadlineExceeded(f"no more of the body came for {chunk_deadline_s:g} s")
        if message["type"] == "http.disconnect":
            raise Unavailable("the client went away before the end of its body")
        if message.get("body"):
            yield message["body"]
        more = message.get("more_body", False)
