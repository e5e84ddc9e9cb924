"""The HTTP server of a process: an ASGI application made from the route table and its handlers.

Everything that can go wrong ends here as a typed error body; nothing else in a process writes to an HTTP client.
"""

import logging
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol
from urllib.parse import unquote

import anyio

from hawker.api.audit import AuditedCall, Auditor, Unaudited, is_audited, is_grave
from hawker.api.call_metadata import (
    CALLER_HEADER,
    CALLER_TOKENS_HEADER,
    NODE_HEADER,
    PROBLEM_HEADER,
    node_of,
    read_name,
    read_tokens,
)
from hawker.api.codec import MAX_DEPTH, Message, Receive, Scope, Send, encode_json
from hawker.api.contract.body import Problem
from hawker.api.endpoints import (
    FixedEndpoint,
    Guard,
    Limiter,
    RefusingEndpoint,
    RouteEndpoint,
    Setup,
    Shutdown,
    SocketEndpoint,
    Unlimited,
    endpoint_of,
    typed_errors,
)
from hawker.api.grant import ROOT, Authenticate, Everything, Grant, share_key
from hawker.api.handlers import Handlers, Written
from hawker.api.reply import JSON, HttpReply
from hawker.api.request import Incoming, IPNetwork, incoming, is_in
from hawker.api.route import AnyRoute, Socket, T
from hawker.api.routes import ROUTES, UNSERVED
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import BadRequest, Fault, Forbidden, HawkerError, NotFound, NotServed, RateLimited, TooLarge
from hawker.fair.connections import key_of_caller
from hawker.fair.occupancy import Occupancy
from hawker.fair.round_robin import RoundRobin
from hawker.fair.table import BODIES, CALLS
from hawker.fair.threads import on_behalf_of
from hawker.fair.turns import NODE, Turns
from hawker.ids import new_ulid
from hawker.names import is_private_address
from hawker.token_bucket import Allowance, TokenBuckets
from hawker.value_object import ValueObject
from hawker.version import VERSION

if TYPE_CHECKING:
    from hawker.api import openapi
else:
    openapi = deferred("hawker.api.openapi")

ANY_METHOD = "*"


class _Node(Generic[T]):
    """A segment of the tree; `targets` is by method, each with the names of its parameters."""

    __slots__ = ("literal", "parameter", "rest", "targets")

    def __init__(self) -> None:
        self.literal: dict[str, _Node[T]] = {}
        self.parameter: _Node[T] | None = None
        self.rest: _Node[T] | None = None
        self.targets: dict[str, tuple[T, tuple[str, ...]]] = {}


class Found(ValueObject, Generic[T], frozen=True):
    target: T
    params: Mapping[str, str]


class WrongMethod(ValueObject, frozen=True):
    """The path is there, with these methods."""

    allowed: tuple[str, ...]
    """In capitals, for the header `allow`."""


class Dispatch(Generic[T]):
    """Filled once, at start."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, method: str, path: str, target: T) -> None:
        """`{name}` is a parameter, a last segment `*` everything below; `ANY_METHOD` takes what no other one does."""
        node, names = self._root, []
        for segment in _segments(path):
            if segment == "*":
                node.rest = node = node.rest or _Node()
            elif segment.startswith("{"):
                names.append(segment[1:-1])
                node.parameter = node = node.parameter or _Node()
            else:
                node = node.literal.setdefault(segment, _Node())
        assert method not in node.targets, f"two routes for {method} {path}"
        node.targets[method] = (target, tuple(names))

    def find(self, method: str, path: str) -> Found[T] | WrongMethod | None:
        values: list[str] = []
        node = self._walk(path, values)
        if node is None or not node.targets:
            return None
        entry = node.targets.get(method) or node.targets.get(ANY_METHOD)
        if entry is None:
            return WrongMethod(tuple(node.targets))
        target, names = entry
        return Found(target, dict(zip(names, map(unquote, values), strict=False)))

    def _walk(self, path: str, values: list[str]) -> _Node[T] | None:
        node, rest = self._root, None
        for segment in _segments(path):
            rest = node.rest or rest
            following = node.literal.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    return rest
                values.append(segment)
                following = node.parameter
            node = following
        return node if node.targets else node.rest or rest


def _segments(path: str) -> list[str]:
    """Without the first slash and without one at the end, which some clients add."""
    return path.removeprefix("/").removesuffix("/").split("/")


# From a method and a path to what answers it: a tree of path segments. Pure. Works on the undecoded path, so that a
# parameter may hold an encoded slash. A literal segment wins over a parameter.

MAX_BODY_BYTES = 1024 * 1024
LINGER_S, LINGER_BYTES = 1.0, 8 * 1024 * 1024

_HTML = b"text/html; charset=utf-8"
_NOBODY = Everything()
_HEADER_BYTES = 4096  # what a proxy lets pass in one header
_STRANGERS = Allowance(per_s=50, burst=500)
_log = logging.getLogger("hawker.api")


class ServerObserver(Protocol):
    """Told in the event loop's thread. Must be quick and must not raise."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is a path of the route table, or `-` for a path that is not in it; `status` 0 means that the client
        went before its answer. `method` is as the client sent it, `SOCKET` for a conversation."""


class Unobserved:
    """Keeps `ServerObserver`, and nothing else."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        pass


class Server:
    """Called by uvicorn for each request. Refuses to be built while a route has no handler."""

    def __init__(
        self,
        handlers: Handlers,
        authenticate: Authenticate,
        clock: Clock,
        *,
        routes: Iterable[AnyRoute] = ROUTES,
        version: str = VERSION,
        max_body_bytes: int = MAX_BODY_BYTES,
        observer: ServerObserver | None = None,
        limiter: Limiter | None = None,
        written: Written | None = None,
        between_nodes: bool = False,
        proxies: Sequence[IPNetwork] = (),
        auditor: Auditor | None = None,
    ) -> None:
        """`between_nodes`: whoever has a token here is of the fleet, and says in whose name it calls. Every call takes
        one there, also such as the public API answers everybody; and a node gets what nodes ask of each other.
        `proxies` are the networks of those whose word on where a call comes from is believed."""
        routes = tuple(routes)
        missing = handlers.missing(routes)
        assert not missing, f"routes without a handler: {', '.join(missing)}"
        self._authenticate = authenticate
        self._clock = clock
        self._observer = observer or Unobserved()
        self._limiter = limiter or Unlimited()
        self._shutdown = Shutdown()
        self._http: Dispatch[RouteEndpoint] = Dispatch()
        self._sockets: Dispatch[SocketEndpoint] = Dispatch()
        self._between_nodes = between_nodes
        self._auditor = auditor or Unaudited()
        self._proxies = tuple(proxies)
        self._entrance = RoundRobin()
        self._calls = None if between_nodes else Occupancy(CALLS)
        self._strangers = TokenBuckets(_STRANGERS) if limiter is not None else None
        deepest = None if between_nodes else MAX_DEPTH
        setup = Setup(handlers, self._shutdown, clock, max_body_bytes, written, Turns(BODIES), deepest)
        for route in routes:
            self._add(route, setup)
        for page in () if between_nodes else _pages(routes, version):
            self._http.add("GET", page.path, page)
        for unserved in UNSERVED:
            refusal = RefusingEndpoint(unserved.path, NotServed, f"{unserved.what} is not served by this node yet")
            self._http.add(ANY_METHOD, unserved.path, refusal)

    def stop(self) -> None:
        """End the streams, conversations and waits that would go on; other calls come to their end."""
        self._shutdown.stop()

    def is_proxy(self, address: str) -> bool:
        """Whether it is one that we were told to trust."""
        return bool(self._proxies) and is_in(address, self._proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve_http(scope, receive, send)
            case "websocket":
                await self._serve_socket(scope, receive, send)
            case other:
                raise AssertionError(f"uvicorn is set up without {other}")

    def _add(self, route: AnyRoute, setup: Setup) -> None:
        endpoint = endpoint_of(route, setup)
        if isinstance(route, Socket):
            self._sockets.add(route.method, route.path, SocketEndpoint(route, setup))
            endpoint = RefusingEndpoint(route.path, BadRequest, "this call is a conversation over a WebSocket")
        assert endpoint is not None
        self._http.add(route.method, route.path, endpoint)
        for alias in route.aliases:
            self._http.add(alias.method, alias.path, endpoint)

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self._clock.monotonic()
        request_id = new_ulid(self._clock)
        reply = HttpReply(send, request_id)
        path = "-"
        found = self._http.find(scope["method"], _path(scope))
        try:
            with typed_errors(request_id):
                if isinstance(found, Found):
                    path = found.target.path
                    request = incoming(scope, found.params, receive, request_id, self._proxies)
                    with self._counted(request.source) as key:
                        await self._entrance.come_in(key)
                        guard = found.target.guard
                        reply.listed_errors = guard.route is not None and guard.route.listed_errors
                        grant = await self._authenticated(guard, request)
                        audited = self._audited(guard, request, grant)
                        reply.before = None if audited is None else partial(self._auditor.ends, audited)
                        await self._admit(guard, request, grant, audited)
                        with on_behalf_of(share_of(grant, found.params)):
                            await found.target(request, grant, reply)
                else:
                    await _no_endpoint(found, reply)
        except TooLarge as error:
            await reply.last_problem(error)
            await _drain(receive)
            await reply.end()
        except HawkerError as error:
            await reply.problem(error)
        except anyio.get_cancelled_exc_class():
            await reply.problem(Fault("the node stopped before the call came to its end: it may have taken effect"))
            raise
        finally:
            self._note(scope, path, reply.status, started, request_id)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self._clock.monotonic()
        request_id = new_ulid(self._clock)
        reply = HttpReply(_denial(send), request_id)
        path, status, audited = "-", 0, None
        await receive()  # websocket.connect
        try:
            found = self._sockets.find("GET", _path(scope))
            if not isinstance(found, Found):
                raise NotFound("there is no such WebSocket")
            path = found.target.path
            request = incoming(scope, found.params, receive, request_id, self._proxies)
            with self._counted(request.source) as key, typed_errors(request_id):
                await self._entrance.come_in(key)
                grant = await self._authenticated(found.target.guard, request)
                audited = self._audited(found.target.guard, request, grant)
                await self._admit(found.target.guard, request, grant, audited)
                with on_behalf_of(share_of(grant, found.params)):
                    status = await found.target(request, grant, send)
        except HawkerError as error:
            await reply.problem(error)
            status = reply.status
        finally:
            if audited is not None:
                with anyio.CancelScope(shield=True):
                    await self._auditor.ends(audited, status)
            self._note({**scope, "method": "SOCKET"}, path, status, started, request_id)

    @contextmanager
    def _counted(self, source: str) -> Iterator[str]:
        """As one of its address's calls, by the key of its share: a proxy, or the edge, may bring any number over few
        connections. Raises `RateLimited`."""
        key = key_of_caller(source)
        if self._calls is None:
            yield key
            return
        if not self._calls.fits(key):
            raise RateLimited(
                f"too many calls from this address are under way: {CALLS.each} may be, or there is no room"
            )
        self._calls.enter(key)
        try:
            yield key
        finally:
            self._calls.leave(key)

    async def _authenticated(self, guard: Guard, request: Incoming) -> Grant:
        grant: Grant = _NOBODY
        if guard.auth or self._between_nodes:
            grant = await self._authenticate(request.header(b"authorization"), request.source)
            if not self._between_nodes:
                _check_root(grant, request.source)
        elif self._strangers is not None and not self._strangers.take(_key(request), self._now()):
            raise RateLimited("too many calls without a token from this address")
        if not self._between_nodes:
            return grant
        _check_node(request)
        named = request.header(CALLER_HEADER.encode())
        if named is None:
            return grant
        token_ids = read_tokens(request.header(CALLER_TOKENS_HEADER.encode()))
        return Everything(read_name(named), root=grant.root, token_ids=token_ids)

    async def _admit(self, guard: Guard, request: Incoming, grant: Grant, audited: AuditedCall | None) -> None:
        """Nothing is read of a body or done before. Raises `Forbidden`, `RateLimited`, and `Unavailable` for a grave
        call that cannot be told."""
        if self._between_nodes:
            guard.check_node(grant)
        guard.check(grant, request.params)
        guard.spend(self._limiter, request.params, grant)
        if audited is not None and audited.grave:
            await self._auditor.begins(audited)

    def _now(self) -> float:
        return self._clock.monotonic()

    def _audited(self, guard: Guard, request: Incoming, grant: Grant) -> AuditedCall | None:
        """None for a call that is not told."""
        route = guard.route
        if route is None or not is_audited(route, request.query):
            return None
        return AuditedCall(
            route=route,
            grant=grant,
            source=request.source,
            node=node_of(request.header(NODE_HEADER.encode())) if self._between_nodes else "",
            params=request.params,
            request_id=request.request_id,
            grave=is_grave(route, request.query),
        )

    def _note(self, scope: Scope, path: str, status: int, started: float, request_id: str) -> None:
        method, seconds = scope["method"], self._clock.monotonic() - started
        self._observer.answered(method, path, status, seconds)
        if _log.isEnabledFor(logging.INFO):
            ms = round(seconds * 1000, 1)
            fields: dict[str, object] = {
                "method": method,
                "path": path,
                "status": status,
                "ms": ms,
                "request_id": request_id,
            }
            if self._between_nodes:
                fields["node"] = _calling_node(scope)
            _log.info("request", extra=fields)


def share_of(grant: Grant, params: Mapping[str, str]) -> str:
    """In whose share the work of a call counts: the app's that the path names, else that of the caller's token. The
    operator's own calls, with the root token, count as the node's."""
    if isinstance(grant, Everything) and not grant.token_ids and grant.name in ("", ROOT):
        return NODE
    return params.get("app_name") or share_key(grant)


def _pages(routes: tuple[AnyRoute, ...], version: str) -> tuple[FixedEndpoint, FixedEndpoint]:
    return (
        FixedEndpoint("/openapi.json", lambda: encode_json(openapi.openapi(routes, version)), JSON),
        FixedEndpoint(
            "/docs", lambda: openapi.docs(openapi.openapi(routes, version)).encode(), b"text/html; charset=utf-8"
        ),
    )


def _check_node(request: Incoming) -> None:
    """Raises `Forbidden` for a node that calls in another's name."""
    said = node_of(request.header(NODE_HEADER.encode()))
    if request.certified and said not in ("", request.certified):
        raise Forbidden(f"the certificate is that of node {request.certified}, and not of {said}")


def _key(request: Incoming) -> bytes:
    return key_of_caller(request.source).encode()


def _check_root(grant: Grant, source: str) -> None:
    """Raises `Forbidden` for the root token from a machine: what runs there is not the operator's alone."""
    if grant.root and is_private_address(source):
        raise Forbidden("the root token is not taken from a machine: use one that `hawker tokens create` makes")


def _calling_node(scope: Scope) -> str:
    """Which node says that it calls, in a call between nodes."""
    shown = dict(scope["headers"]).get(NODE_HEADER.encode(), b"")
    return node_of(shown.decode("latin-1"))


def _path(scope: Scope) -> str:
    """The path as the client sent it, undecoded: a parameter may hold an encoded slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


async def _no_endpoint(found: WrongMethod | None, reply: HttpReply) -> None:
    if found is None:
        raise NotFound("there is no such path in this API, see /docs")
    allowed = ", ".join(found.allowed)
    problem = Problem(error=f"this path takes {allowed}", status="unknown")
    await reply.body(405, encode_json(problem), extra=[(b"allow", allowed.encode())])


async def _drain(receive: Receive) -> None:
    """Let a client that is still sending come to read the answer: closing at once could lose it."""
    left = LINGER_BYTES
    with anyio.move_on_after(LINGER_S):
        while left > 0 and (message := await receive())["type"] != "http.disconnect":
            left -= len(message.get("body", b""))


def _denial(send: Send) -> Send:
    """Answers the handshake of a WebSocket with an HTTP response (ASGI's extension `websocket.http.response`), whose
    body is in a header too if it is short."""
    begun: Message = {}

    async def denied(message: Message) -> None:
        nonlocal begun
        message = {**message, "type": f"websocket.{message['type']}"}
        if message["type"] == "websocket.http.response.start":
            begun = message
            return
        if begun and len(body := message.get("body", b"")) <= _HEADER_BYTES:
            begun["headers"] = [*begun["headers"], (PROBLEM_HEADER.encode(), b64encode(body))]
        if begun:
            await send(begun)
        begun = {}
        await send(message)

    return denied
