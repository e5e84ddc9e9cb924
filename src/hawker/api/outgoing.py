"""One HTTP request as it goes out: made from a route and typed values. The other end's `request`. No I/O."""

from collections.abc import Mapping
from typing import Generic
from urllib.parse import quote

import msgspec

from hawker.api.call_metadata import DEPLOY_TERM_HEADER
from hawker.api.codec import AnswerCodec, BodyCodec
from hawker.api.query import QueryCodec
from hawker.api.route import B, P, Q, R, Route
from hawker.http.message import encode_request
from hawker.value_object import ValueObject


class Outgoing(ValueObject, frozen=True):
    """`target` is the path and query, undecoded; `data` is the body, empty for none."""

    method: str
    """In capitals, as HTTP writes it."""
    target: str
    headers: dict[str, str]
    """By name; who sends it adds the host and the body's length."""
    data: bytes

    def encoded(self, authority: str, also: Mapping[str, str]) -> bytes:
        """The whole of it in HTTP/1.1, with the header `Host` and other headers. Raises `BadRequest` where a value has
        a line break in it."""
        length = str(len(self.data))
        headers = [("host", authority), ("content-length", length), *also.items(), *self.headers.items()]
        return encode_request(self.method, self.target, headers, self.data)


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
        deploy_term: str | None = None,
    ) -> Outgoing:
        """`base` is what the path begins with, empty for the root of a server."""
        route = self._route
        given = {
            "fly-machine-lease-nonce": nonce,
            "idempotency-key": idempotency_key,
            DEPLOY_TERM_HEADER: deploy_term,
        }
        headers = {name: value for name, value in given.items() if value is not None}
        data = self._body.encode(route.body() if body is None else body)
        if data:
            headers["content-type"] = "application/json"
        return Outgoing(route.method, f"{base}{self._path(params)}{self._query_string(query)}", headers, data)

    def _path(self, params: P | None) -> str:
        if not self._has_params:
            return self._route.path
        given = msgspec.structs.asdict(self._route.params() if params is None else params)
        return self._route.path.format(**{name: quote(str(value), safe="") for name, value in given.items()})

    def _query_string(self, query: Q | None) -> str:
        pairs = [] if query is None else self._query.encode(query)
        written = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in pairs)
        return f"?{written}" if written else ""
