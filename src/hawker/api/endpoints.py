"""What each kind of route does between a request and its reply, HTTP or WebSocket. Errors before a reply begins are the
server's; `error_boundary` is the one place where an error that nobody expected is caught, logged and made a typed one.

In a WebSocket the first message opens the call, and an error is the last message. Calls that may last are ended when
the server stops, where cutting a call short does no harm.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, cached_property
from typing import Any, Generic, Protocol

import anyio
from anyio.lowlevel import checkpoint

from hawker.api.codec import MAX_DEPTH, AnswerCodec, BodyCodec, Receive, Send, encode_json
from hawker.api.failure import failed
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers, Written, finish
from hawker.api.reply import LINES, HttpReply
from hawker.api.request import UPLOAD_PACE, CallReader, Incoming, body_chunks
from hawker.api.route import USUAL_TIMEOUT_S, AnyRoute, R, Socket, Stream, U, Unary, Upload, attempt_of, writes
from hawker.api.routes import asked_by_nodes
from hawker.clock import Clock
from hawker.errors import BadRequest, Fault, Forbidden, HawkerError, Unavailable
from hawker.fair.turns import Turns
from hawker.value_object import ValueObject

_log = logging.getLogger("hawker.api")


@contextmanager
def typed_errors(request_id: str) -> Iterator[None]:
    """Only errors of the family leave the block: anything else is logged and raised as `Fault`. The caller is told the
    request's id and nothing of the cause."""
    try:
        yield
    except HawkerError:
        raise
    except Exception as error:
        _log.error("unexpected error", exc_info=error, extra={"request_id": request_id})
        raise Fault(f"internal error, request id {request_id}") from error


class Shutdown:
    """Holds the calls that end with the server."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    @contextmanager
    def until_stop(self) -> Iterator[None]:
        """Raises `Unavailable` when the server stops before the block ends."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._stopped:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise Unavailable("the node is stopping")

    def stop(self) -> None:
        """End the blocks that are under way, and every later one at once."""
        self._stopped = True
        for scope in list(self._scopes):
            scope.cancel()


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
    """False lets everybody in, without a look at a token."""
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
    `bodies`; `deepest` is how many lists and objects may be in each other, None for no bound."""

    handlers: Handlers
    shutdown: Shutdown
    clock: Clock
    max_body_bytes: int
    written: Written | None = None
    bodies: Turns | None = None
    deepest: int | None = MAX_DEPTH


class UnaryEndpoint:
    """A body in, a body out. A call that only waits ends when the server stops; one that changes things does not."""

    def __init__(self, route: Unary[Any, Any, Any, Any], setup: Setup) -> None:
        self.path, self.guard = route.path, guard_of(route)
        self._status = route.status
        self._handler = setup.handlers.of(route)
        self._reader = CallReader(route, setup.max_body_bytes, setup.bodies, setup.deepest)
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
        self._reader = CallReader(route, 0, deepest=setup.deepest)
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
        self._reader = CallReader(route, setup.max_body_bytes, setup.bodies, setup.deepest)
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


OPENING_DEADLINE_S = 10.0


class ServerChannel(Generic[R, U]):
    """JSON text frames over ASGI."""

    def __init__(self, receive: Receive, send: Send, up: type[U]) -> None:
        self._receive, self._send = receive, send
        self._codec = BodyCodec(up)
        self._gone = False

    async def send(self, message: R) -> None:
        """Raises `Unavailable` when the client has gone."""
        try:
            await self._send({"type": "websocket.send", "text": encode_json(message).decode()})
        except OSError as error:
            self._gone = True
            raise Unavailable("the client has gone") from error

    async def receive(self) -> U | None:
        data = await self.frame()
        return None if data is None else self._codec.decode(data)

    async def frame(self) -> bytes | None:
        """The next frame, undecoded."""
        if self._gone:
            return None
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._gone = True
            return None
        text = message.get("text")
        return message.get("bytes") or b"" if text is None else text.encode()

    async def end(self, error: HawkerError | None) -> None:
        """Say why if it was an error, and close; nothing if the client has gone."""
        if self._gone:
            return
        with suppress(OSError):  # it goes as soon as it has the last message
            if error is not None:
                await self._send({"type": "websocket.send", "text": encode_json(failed(error)).decode()})
            await self._send({"type": "websocket.close", "code": 1000})


class SocketEndpoint:
    def __init__(self, route: Socket[Any, Any, Any, Any, Any], setup: Setup) -> None:
        self.path, self.guard = route.path, guard_of(route)
        self._up = route.up
        self._handler = setup.handlers.of(route)
        self._reader = CallReader(route, 0, deepest=setup.deepest)
        self._shutdown = setup.shutdown

    async def __call__(self, request: Incoming, grant: Grant, send: Send) -> int:
        """The HTTP status that a plain call would have had."""
        await send({"type": "websocket.accept", "headers": [(b"fly-request-id", request.request_id.encode())]})
        channel: ServerChannel[Any, Any] = ServerChannel(request.receive, send, self._up)
        error = await self._converse(request, grant, channel)
        await channel.end(error)
        return 200 if error is None else error.status

    async def _converse(self, request: Incoming, grant: Grant, channel: ServerChannel[Any, Any]) -> HawkerError | None:
        try:
            with typed_errors(request.request_id):
                await self._handle(request, grant, channel)
        except HawkerError as error:
            return error
        return None

    async def _handle(self, request: Incoming, grant: Grant, channel: ServerChannel[Any, Any]) -> None:
        opening = None
        with anyio.move_on_after(OPENING_DEADLINE_S):
            opening = await channel.frame()
        if opening is None:
            raise BadRequest(f"the opening message did not come within {OPENING_DEADLINE_S:g} s")
        call = self._reader.with_data(request, grant, opening)
        with self._shutdown.until_stop():
            await self._handler(call, channel)
