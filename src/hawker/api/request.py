"""One HTTP request as it comes in: its headers, its body up to a limit, and the typed `Call` for the handler."""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from types import NoneType
from typing import Any, Generic, TypeAlias
from urllib.parse import parse_qsl

import anyio
import msgspec

from hawker.api.call_metadata import DEADLINE_HEADER, DEPLOY_TERM_HEADER, read_deadline
from hawker.api.codec import MAX_DEPTH, BodyCodec, Receive, Scope
from hawker.api.grant import Grant
from hawker.api.query import QueryCodec
from hawker.api.route import B, Call, P, Q, Route, is_list
from hawker.errors import BadRequest, DeadlineExceeded, TooLarge, Unavailable
from hawker.fair.connections import key_of_caller
from hawker.fair.threads import Pool, in_thread_with_rests
from hawker.fair.turns import Turns
from hawker.http.message import CERTIFIED
from hawker.value_object import ValueObject

LARGE_BODY = 64 * 1024
MAX_QUERY_BYTES = 64 * 1024
_UNKNOWN = 1 << 62


class Incoming(ValueObject, frozen=True):
    """What came with a request beside its body. `params` are those of the path, decoded; `query` is undecoded, at most
    `MAX_QUERY_BYTES`; `headers` are by their names in lower case; `receive` gives the body; `request_id` is a ULID that
    the answer carries; `source` is the client's address, empty when it is not known; `certified` is the node whose
    certificate was shown, empty where none was asked for."""

    params: Mapping[str, str]
    query: bytes
    headers: Mapping[bytes, bytes]
    receive: Receive
    request_id: str
    source: str = ""
    certified: str = ""

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


IPNetwork: TypeAlias = IPv4Network | IPv6Network


def incoming(
    scope: Scope, params: Mapping[str, str], receive: Receive, request_id: str, proxies: Sequence[IPNetwork] = ()
) -> Incoming:
    """`proxies` are those whose word on where a request comes from is believed."""
    headers = dict(scope["headers"])
    source = (scope.get("client") or ("",))[0]
    if proxies and is_in(source, proxies):
        source = _told_source(scope["headers"], source, proxies)
    return Incoming(params, scope["query_string"], headers, receive, request_id, source, scope.get(CERTIFIED, ""))


def is_in(address: str, networks: Sequence[IPNetwork]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:  # a caller without an address
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


def _told_source(headers: Sequence[tuple[bytes, bytes]], peer: str, proxies: Sequence[IPNetwork]) -> str:
    """The last address of X-Forwarded-For that is no proxy of ours: each proxy adds its own peer at the end, so
    whatever stands before that is the caller's own invention."""
    told = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
    for address in reversed([each.strip() for each in told.split(",")] if told else []):
        if not is_in(address, proxies):
            return address
    return peer


class CallReader(Generic[P, Q, B]):
    """Makes the calls of one route; its codecs are built once."""

    def __init__(
        self,
        route: Route[P, Q, B, Any],
        max_body_bytes: int,
        bodies: Turns | None = None,
        deepest: int | None = MAX_DEPTH,
    ) -> None:
        self._params = route.params
        self._route = route
        self._takes_body = route.body is not NoneType
        self._max_body_bytes = min(max_body_bytes, route.body_bytes or max_body_bytes)
        self._bodies = bodies
        self._deepest = deepest

    @cached_property
    def _query(self) -> QueryCodec[Q]:
        """This and the next one are made for the first call: a hundred routes would hold up the boot."""
        return QueryCodec(self._route.query, strict=is_list(self._route))

    @cached_property
    def _body(self) -> BodyCodec[B]:
        route = self._route
        return BodyCodec(route.body, strict=route.strict, optional=route.body_optional, deepest=self._deepest)

    async def with_body(self, request: Incoming, grant: Grant) -> Call[P, Q, B]:
        """Reads the body to its end, if the route has one. Raises `TooLarge`, `BadRequest`, `Unprocessable`."""
        data = await self._body_of(request) if self._takes_body else b""
        if len(data) <= LARGE_BODY:
            return self.with_data(request, grant, data)
        return await in_thread_with_rests(Pool.BODIES, self.with_data, request, grant, data)

    async def _body_of(self, request: Incoming) -> bytes:
        """A large one in its turn: what an address sends, or only announces, is held here until it is whole."""
        most = self._max_body_bytes
        if self._bodies is None or min(most, _announced(request)) <= LARGE_BODY:
            return await read_body(request, most)
        async with self._bodies.hold(key_of_caller(request.source)):
            return await read_body(request, most)

    def with_data(self, request: Incoming, grant: Grant, data: bytes) -> Call[P, Q, B]:
        return Call(
            params=_params(self._params, request.params),
            query=self._query.decode(_pairs(request.query)),
            body=self._body.decode(data),
            grant=grant,
            request_id=request.request_id,
            nonce=request.header(b"fly-machine-lease-nonce"),
            idempotency_key=request.header(b"idempotency-key"),
            deploy_term=request.header(DEPLOY_TERM_HEADER.encode()),
            version=request.header(b"hawker-version"),
            deadline_s=read_deadline(request.header(DEADLINE_HEADER.encode())),
            source=request.source,
            certified=request.certified,
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
    if limit < _announced(request) < _UNKNOWN:
        raise too_large(limit)
    chunks: list[bytes] = []
    left = limit
    async for chunk in body_chunks(request, BODY_PACE):
        left -= len(chunk)
        if left < 0:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _announced(request: Incoming) -> int:
    """The bytes of the body as its head says; without a word, any number."""
    length = request.headers.get(b"content-length")
    if length is None:
        return _UNKNOWN if b"transfer-encoding" in request.headers else 0
    return int(length) if length.isdigit() else 0


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")


class Pace(ValueObject, frozen=True):
    """How slowly a body may come: no pause of more than `pause_s` seconds, and from `grace_s` seconds on at least
    `floor` bytes for each second since its begin."""

    pause_s: float
    grace_s: float
    floor: int

    def until(self, began: float, now: float, received: int) -> float:
        """The moment by which more has to have come."""
        return min(now + self.pause_s, began + self.grace_s + received / self.floor)


BODY_PACE = Pace(pause_s=15.0, grace_s=15.0, floor=16 * 1024)
UPLOAD_PACE = Pace(pause_s=60.0, grace_s=60.0, floor=32 * 1024)


async def body_chunks(request: Incoming, pace: Pace) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises `Unavailable` when the client goes away before its end, `DeadlineExceeded` when it
    is slower than `pace`. Time in which nobody asked for more counts for the client."""
    began, received, more = anyio.current_time(), 0, True
    while more:
        message, asked = None, anyio.current_time()
        with anyio.CancelScope(deadline=pace.until(began, asked, received)):
            message = await request.receive()
        if message is None:
            raise DeadlineExceeded(f"the body comes too slowly: {received} bytes in {asked - began:.0f} s")
        received += len(message.get("body", b""))
        if message["type"] == "http.disconnect":
            raise Unavailable("the client went away before the end of its body")
        if message.get("body"):
            given = anyio.current_time()
            yield message["body"]
            began += anyio.current_time() - given
        more = message.get("more_body", False)
