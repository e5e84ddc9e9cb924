"""One HTTP request as it goes out: made from a route and typed values. The other end's `request`. No I/O."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic
from urllib.parse import quote

import msgspec

from hawker.api.codec import AnswerCodec, BodyCodec
from hawker.api.query import QueryCodec
from hawker.api.route import B, P, Q, R, Route
from hawker.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Outgoing:
    """`expects_consent`: the body is sent only once the other side has agreed to read it."""

    method: str
    url: str
    headers: dict[str, str]
    data: Any  # bytes, or an async iterator of bytes
    expects_consent: bool = False

    def carrying(self, data: AsyncIterator[bytes]) -> "Outgoing":
        return replace(self, data=data, expects_consent=True)


class RouteCodecs(Generic[P, Q, B, R]):
    """How the calls of one route are written and its answers read; built once."""

    def __init__(self, route: Route[P, Q, B, R]) -> None:
        self._route = route
        self._query = QueryCodec(route.query)
        self._body = BodyCodec(route.body)
        self._has_params = "{" in route.path
        self.answer: AnswerCodec[R] = AnswerCodec(route)

    def outgoing(
        self,
        base: str,
        params: P | None,
        query: Q | None,
        body: B | None,
        nonce: str | None = None,
        idempotency_key: str | None = None,
    ) -> Outgoing:
        route = self._route
        given = {"fly-machine-lease-nonce": nonce, "idempotency-key": idempotency_key}
        headers = {name: value for name, value in given.items() if value is not None}
        data = self._body.encode(route.body() if body is None else body)
        if data:
            headers["content-type"] = "application/json"
        url = f"{base}{self._path(params)}{self._query_string(query)}"
        return Outgoing(route.method, url, headers, data)

    def _path(self, params: P | None) -> str:
        if not self._has_params:
            return self._route.path
        given = msgspec.structs.asdict(self._route.params() if params is None else params)
        return self._route.path.format(**{name: quote(str(value), safe="") for name, value in given.items()})

    def _query_string(self, query: Q | None) -> str:
        pairs = [] if query is None else self._query.encode(query)
        written = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in pairs)
        return f"?{written}" if written else ""


_MEANT_FOR_NOBODY = re.compile("[\r\n\0]")


def written_request(outgoing: Outgoing, origin: str, host: str, also: Mapping[str, str]) -> bytes:
    """The whole of it in HTTP/1.1, to the place that its URL begins with. Raises `BadRequest` where a value would end
    its line and begin one of its own."""
    target = outgoing.url[len(origin) :] or "/"
    lines = [f"{outgoing.method} {target} HTTP/1.1", f"host: {host}", f"content-length: {len(outgoing.data)}"]
    lines += [f"{name}: {value}" for headers in (also, outgoing.headers) for name, value in headers.items()]
    if any(_MEANT_FOR_NOBODY.search(line) for line in lines):
        raise BadRequest("neither the address nor a token, nonce or key may have a line break in it")
    return "\r\n".join([*lines, "", ""]).encode() + bytes(outgoing.data)
