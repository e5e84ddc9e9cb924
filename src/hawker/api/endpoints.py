"""What each kind of HTTP route does between a request and its reply. Errors before a reply begins are the server's."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext
from functools import cache, cached_property
from typing import Any, Protocol

import anyio
from anyio.lowlevel import checkpoint

from hawker.api.codec import AnswerCodec, Receive, encode_json
from hawker.api.error_boundary import typed_errors
from hawker.api.failure import failed
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers, Written, finish
from hawker.api.reply import LINES, HttpReply
from hawker.api.request import UPLOAD_PACE, CallReader, Incoming, body_chunks
from hawker.api.route import USUAL_TIMEOUT_S, AnyRoute, Stream, Unary, Upload, attempt_of, writes
from hawker.api.routes import asked_by_nodes
from hawker.api.shutdown import Shutdown
from hawker.clock import Clock
from hawker.errors import Forbidden, HawkerError
from hawker.fair.turns import Turns
from hawker.value_object import ValueObject

KEEPALIVE_S = 15.0
_TURN = 32  # lines, between which the loop turns


class Limiter(Protocol):
    """Asked once for each call, after its token was found good and before anything is read or done."""

    def spend(self, route: AnyRoute, params: Mapping[str, str], *, root: bool) -> None:
        """`root`: the caller holds the root token. Raises `RateLimited`."""


class Unlimited:
    """Keeps `Limiter`, and lets everything pass."""

    def spend(self, route: AnyRoute, params: Mapping[str, str], *, root: bool) -> None:
        return None


class Guard(ValueObject, frozen=True):
    """Whether a caller needs a token, and for which call of which path it must be good; without a route no more is
    asked of it."""

    auth: bool
    route: AnyRoute | None = None

    def check(self, grant: Grant, params: Mapping[str, str]) -> None:
        """Raises `Forbidden`."""
        if self.route is not None and self.auth and self.route.guarded:
            grant.check(attempt_of(self.route, params))

    def check_node(self, grant: Grant) -> None:
        """Of a call between nodes: what they do not ask of each other takes the root token. Raises `Forbidden`."""
        if not grant.root and self.route is not None and not asked_by_nodes(self.route):
            raise Forbidden("nodes may not ask this of each other: it takes the root token")

    def spend(self, limiter: Limiter, params: Mapping[str, str], grant: Grant) -> None:
        """Raises `RateLimited`."""
        if self.route is not None:
            limiter.spend(self.route, params, root=grant.root)


def guard_of(route: AnyRoute) -> Guard:
    return Guard(route.auth, route)


class RouteEndpoint(Protocol):
    """Answers the requests of one path."""

    path: str
    guard: Guard

    async def __call__(self, request: Incoming, grant: Grant, reply: HttpReply) -> None: ...


class Setup(ValueObject, frozen=True):
    """What all endpoints of a server share. A body of more than `max_body_bytes` is refused with `TooLarge`; `written`
    tells where in the catalog a call that wrote can be read, None for nowhere; large bodies come in turns of
    `bodies`."""

    handlers: Handlers
    shutdown: Shutdown
    clock: Clock
    max_body_bytes: int
    written: Written | None = None
    bodies: Turns | None = None


class UnaryEndpoint:
    """A body in, a body out. A call that only waits ends when the server stops; one that changes things does not."""

    def __init__(self, route: Unary[Any, Any, Any, Any], setup: Setup) -> None:
        self.path, self.guard = route.path, guard_of(route)
        self._status = route.status
        self._handler = setup.handlers.of(route)
        self._reader = CallReader(route, setup.max_body_bytes, setup.bodies)
        self._route = route
        self._kind = route.media.encode()
        lasting = route.method == "GET" and route.timeout_s > USUAL_TIMEOUT_S
        self._shutdown = setup.shutdown if lasting else None
        self._written = setup.written if writes(route) else None

    @cached_property
    def _codec(self) -> AnswerCodec[Any]:
        """Made for the first call."""
        return AnswerCodec(self._route)

    async def __call__(self, request: Incoming, grant: Grant, reply: HttpReply) -> None:
        call = await self._reader.with_body(request, grant)
        with self._shutdown.until_stop() if self._shutdown else nullcontext():
            answer = await self._handler(call)
        if self._written is not None and call.metadata.version is None:
            call.metadata.version = await self._written()
        data, cursor = self._codec.encode(answer)
        await reply.answer(self._status, data, cursor, kind=self._kind, metadata=call.metadata)


class UploadEndpoint:
    def __init__(self, route: Upload[Any, Any, Any, Any], setup: Setup) -> None:
        self.path, self.guard = route.path, guard_of(route)
        self._status = route.status
        self._handler = setup.handlers.of(route)
        self._reader = CallReader(route, 0)
        self._route = route
        self._shutdown = setup.shutdown

    @cached_property
    def _codec(self) -> AnswerCodec[Any]:
        """Made for the first call."""
        return AnswerCodec(self._route)

    async def __call__(self, request: Incoming, grant: Grant, reply: HttpReply) -> None:
        call = self._reader.with_data(request, grant, b"")
        with self._shutdown.until_stop():
            answer = await self._handler(call, body_chunks(request, UPLOAD_PACE))
        data, cursor = self._codec.encode(answer)
        await reply.answer(self._status, data, cursor)


class StreamEndpoint:
    """Lines of JSON until the items end, the client goes, or the server stops. An empty line now and then tells the
    client that the node still lives."""

    def __init__(self, route: Stream[Any, Any, Any, Any], setup: Setup) -> None:
        self.path, self.guard = route.path, guard_of(route)
        self._status = route.status
        self._handler = setup.handlers.of(route)
        self._reader = CallReader(route, setup.max_body_bytes, setup.bodies)
        self._shutdown = setup.shutdown
        self._clock = setup.clock

    async def __call__(self, request: Incoming, grant: Grant, reply: HttpReply) -> None:
        items: AsyncIterator[object] = await self._handler(await self._reader.with_body(request, grant))
        try:
            await reply.begin(self._status, LINES)
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_when_gone, request.receive, group.cancel_scope)
                group.start_soon(_keep_alive, reply, self._clock)
                await self._send_lines(items, request, reply)
                group.cancel_scope.cancel()
        finally:
            await finish(items)
        await reply.end()

    async def _send_lines(self, items: AsyncIterator[object], request: Incoming, reply: HttpReply) -> None:
        try:
            with typed_errors(request.request_id), self._shutdown.until_stop():
                count = 0
                async for item in items:
                    await reply.part(encode_json(item) + b"\n")
                    count += 1
                    if not count % _TURN:
                        await checkpoint()  # a client that takes all at once is not to hold up the others
        except HawkerError as error:
            await reply.part(encode_json(failed(error)) + b"\n")


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _keep_alive(reply: HttpReply, clock: Clock) -> None:
    while True:
        await clock.sleep(KEEPALIVE_S)
        await reply.part(b"\n")


class RefusingEndpoint:
    """Answers a path with an error, whatever the request is."""

    def __init__(self, path: str, error: type[HawkerError], text: str, *, auth: bool = True) -> None:
        self.path, self.guard = path, Guard(auth)
        self._error, self._text = error, text

    async def __call__(self, request: Incoming, grant: Grant, reply: HttpReply) -> None:
        raise self._error(self._text)


class FixedEndpoint:
    """Answers a path with text that never changes. It is made for the first who asks: a node's boot need not wait."""

    def __init__(self, path: str, make: Callable[[], bytes], kind: bytes) -> None:
        self.path, self.guard = path, Guard(auth=False)
        self._data, self._kind = cache(make), kind

    async def __call__(self, request: Incoming, grant: Grant, reply: HttpReply) -> None:
        await reply.body(200, self._data(), kind=self._kind)


def endpoint_of(route: AnyRoute, setup: Setup) -> RouteEndpoint | None:
    """None for a socket, which is not answered over plain HTTP."""
    match route:
        case Unary():
            return UnaryEndpoint(route, setup)
        case Stream():
            return StreamEndpoint(route, setup)
        case Upload():
            return UploadEndpoint(route, setup)
        case _:
            return None
