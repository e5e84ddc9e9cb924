"""The ASGI application: who may call, which route it is, how many may run at once. The routes' work is beside it."""

import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import anyio

from hawker.catalog.http.exchange import Answered, ClientLeft, Exchange, Receive, Scope, Send
from hawker.catalog.http.service import CatalogAccess
from hawker.catalog.http.statement import NotJson, WrongShape
from hawker.errors import HawkerError
from hawker.value_object import ValueObject

CROWDED = "max concurrency limit reached"
_ENDPOINT = b"x-corrosion-requested-endpoint-name"

_log = logging.getLogger("hawker.catalog.http")


class CatalogEndpoint(ValueObject, frozen=True, eq=False):
    """`rest` routes take one more part of a path, which is given to the handler; else that is empty. `most` calls run
    at once, any more are turned away. Those that last are ended when the server stops."""

    method: str
    """The method in capitals, as HTTP writes it."""
    path: str
    """The path; it begins with `/`."""
    answer: Callable[[Exchange, str], Awaitable[None]]
    most: int = 128
    rest: bool = False
    lasts: bool = False
    """The endpoint's answers go on until the client leaves."""


class CatalogApp:
    def __init__(self, endpoints: Iterable[CatalogEndpoint], access: CatalogAccess) -> None:
        self._exact: dict[str, list[CatalogEndpoint]] = {}
        self._below: dict[str, list[CatalogEndpoint]] = {}
        for endpoint in endpoints:
            (self._below if endpoint.rest else self._exact).setdefault(endpoint.path, []).append(endpoint)
        self._access = access
        self._running: dict[CatalogEndpoint, int] = {}
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False
        self._answering, self._ended = 0, anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        with self._counted(), _left():
            await self._serve(exchange)

    def stop(self) -> None:
        """Ends what lasts; its clients see their answers end."""
        self._stopped = True
        for scope in list(self._scopes):
            scope.cancel()

    async def idle(self) -> None:
        """Waits until nothing is being answered."""
        while self._answering:
            self._ended = anyio.Event()
            await self._ended.wait()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                self._ended.set()

    async def _answer(self, exchange: Exchange, endpoint: CatalogEndpoint, rest: str) -> None:
        if not endpoint.lasts:
            return await endpoint.answer(exchange, rest)
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._stopped:
                scope.cancel()
            try:
                await endpoint.answer(exchange, rest)
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            await exchange.end()

    async def _serve(self, exchange: Exchange) -> None:
        try:
            self._admit(exchange)
            endpoint, rest = self._route(exchange)
            with self._place(endpoint):
                await self._answer(exchange, endpoint, rest)
        except Answered as answer:
            await exchange.text(answer.status, str(answer))
        except NotJson as error:
            await exchange.text(400, f"Failed to parse the request body as JSON: {error}")
        except WrongShape as error:
            await exchange.text(422, f"Failed to deserialize the JSON body into the target type: {error}")
        except HawkerError as error:
            if exchange.begun:
                _log.warning("answer cut off", extra={"path": exchange.path, "reason": str(error)})
                return
            await exchange.say(error.status, {"error": plain(error)})
        await exchange.drain()

    def _admit(self, exchange: Exchange) -> None:
        token, endpoint = self._access.token, self._access.endpoint
        if token is not None:
            given = exchange.header(b"authorization") or b""
            if not hmac.compare_digest(given, b"Bearer " + token.encode()):
                raise Answered(401)
        asked = exchange.header(_ENDPOINT)
        if endpoint is not None and asked is not None:
            if not asked.isascii():
                raise Answered(400, "the name of the endpoint is not ASCII")
            if asked.decode() != endpoint:
                raise Answered(421)

    def _route(self, exchange: Exchange) -> tuple[CatalogEndpoint, str]:
        rest, matching = "", self._exact.get(exchange.path)
        if matching is None:
            head, _, rest = exchange.path.rpartition("/")
            matching = self._below.get(head) if rest else None
        if matching is None:
            raise Answered(404)
        for endpoint in matching:
            if endpoint.method == exchange.method:
                return endpoint, rest
        raise Answered(405)

    @contextmanager
    def _place(self, endpoint: CatalogEndpoint) -> Iterator[None]:
        if self._running.get(endpoint, 0) >= endpoint.most:
            raise Answered(503, CROWDED)
        self._running[endpoint] = self._running.get(endpoint, 0) + 1
        try:
            yield
        finally:
            self._running[endpoint] -= 1


def plain(error: HawkerError) -> str:
    """The text of an error without the word that the rest of Hawker puts before it."""
    return str(error).removeprefix(f"{error.prefix}: ")


@contextmanager
def _left() -> Iterator[None]:
    with suppress(ClientLeft):
        yield
