"""A real server on a loopback port with handlers that answer samples, and a client for it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp
import anyio

from hawker.api.client import Client
from hawker.api.endpoints import Limiter
from hawker.api.grant import Everything, Grant
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.listener import listening
from hawker.api.route import AnyRoute, Call, Socket, Stream, Unary, Upload
from hawker.api.routes import ROUTES
from hawker.api.server import Server, ServerObserver
from hawker.clock import SystemClock
from hawker.errors import Forbidden, Unauthorized
from hawker.log import Secret
from hawker.permission import Attempt
from tests.api.samples import sample

TOKEN, NARROW = Secret("token"), Secret("narrow")


class Nothing(Everything):
    """The grant of a token that allows nothing; it notes what was tried."""

    tried: ClassVar[list[Attempt]] = []

    def check(self, attempt: Attempt) -> None:
        self.tried.append(attempt)
        raise Forbidden("not for you")


async def authenticate(authorization: str | None, source: str) -> Grant:
    if authorization == f"Bearer {NARROW.reveal()}":
        return Nothing()
    if authorization != f"Bearer {TOKEN.reveal()}":
        raise Unauthorized("no such token")
    return Everything("alice")


@dataclass(slots=True)
class Fake:
    """Handlers for a table: they note the call, and raise `error` if there is one, else answer a sample."""

    error: Exception | None = None
    calls: list[Call[Any, Any, Any]] = field(default_factory=list)
    heard: list[object] = field(default_factory=list)  # bytes uploaded, messages received

    def forget(self) -> None:
        self.error = None
        self.calls.clear()
        self.heard.clear()

    def handlers(self, routes: Iterable[AnyRoute]) -> Handlers:
        handlers = Handlers()
        for route in routes:
            match route:
                case Unary():
                    handlers.on(route, self._unary(route))
                case Stream():
                    handlers.stream(route, self._stream(route))
                case Upload():
                    handlers.upload(route, self._upload(route))
                case Socket():
                    handlers.socket(route, self._socket(route))
        return handlers

    def _note(self, call: Call[Any, Any, Any]) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def _unary(self, route: AnyRoute) -> Any:
        async def handle(call: Call[Any, Any, Any]) -> Any:
            self._note(call)
            return sample(route.response)

        return handle

    def _stream(self, route: AnyRoute) -> Any:
        async def items() -> AsyncIterator[Any]:
            yield sample(route.response)
            yield sample(route.response)

        async def handle(call: Call[Any, Any, Any]) -> AsyncIterator[Any]:
            self._note(call)
            return items()

        return handle

    def _upload(self, route: AnyRoute) -> Any:
        async def handle(call: Call[Any, Any, Any], data: AsyncIterator[bytes]) -> Any:
            self._note(call)
            self.heard.append(b"".join([chunk async for chunk in data]))
            return sample(route.response)

        return handle

    def _socket(self, route: AnyRoute) -> Any:
        async def handle(call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
            self._note(call)
            while (message := await channel.receive()) is not None:
                self.heard.append(message)
                await channel.send(sample(route.response))

        return handle


@dataclass(frozen=True, slots=True)
class Served:
    """`client` has the token; `http` is a bare session with it, for what no client of ours would send."""

    url: str
    server: Server
    client: Client
    http: aiohttp.ClientSession


@asynccontextmanager
async def served(
    handlers: Handlers,
    routes: Iterable[AnyRoute] = ROUTES,
    observer: ServerObserver | None = None,
    limiter: Limiter | None = None,
) -> AsyncIterator[Served]:
    server = Server(handlers, authenticate, SystemClock(), routes=routes, observer=observer, limiter=limiter)
    headers = {"Authorization": f"Bearer {TOKEN.reveal()}"}
    async with (
        listening(server, "127.0.0.1", 0) as url,
        Client(url, TOKEN) as client,
        aiohttp.ClientSession(url, headers=headers) as http,
    ):
        yield Served(url, server, client, http)


async def use(served: Served, route: AnyRoute, **given: Any) -> Any:
    """Make one call of any kind of route; a stream's or socket's first item."""
    given = {"params": route.params(**dict.fromkeys(route.params.__struct_fields__, "x")), **given}
    body = given.pop("body", sample(route.body))
    match route:
        case Unary():
            return await served.client.call(route, body=body, **given)
        case Stream():
            async with served.client.stream(route, body=body, **given) as items:
                return await anext(items)
        case Upload():
            return await served.client.upload(route, _chunks(), **given)
        case Socket():
            async with served.client.socket(route, body, **given) as channel:
                await channel.send(sample(route.up))
                return await channel.receive()


async def _chunks() -> AsyncIterator[bytes]:
    yield b"abc"
    yield b"def"


async def hang() -> Any:
    """Never answers."""
    await anyio.sleep_forever()
