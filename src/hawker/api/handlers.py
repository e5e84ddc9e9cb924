"""Which function answers which route. A server is refused as long as a route has none.

A class of answers marks its methods with `@answers(ROUTE)`, and `Handlers.add` binds them; mypy holds a method to the
types of its route.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import anyio

from hawker.api.route import AnyRoute, B, Call, P, Q, R, Route, Socket, Stream, U, Unary, Upload
from hawker.value_object import ValueObject

FINISH_DEADLINE_S = 5.0

Out_contra = TypeVar("Out_contra", contravariant=True)
In_co = TypeVar("In_co", covariant=True)


class SocketChannel(Protocol[Out_contra, In_co]):
    """One end of a socket's conversation."""

    async def send(self, message: Out_contra) -> None:
        """Returns once the message is on its way; waits while the other end is slow."""

    async def receive(self) -> In_co | None:
        """The next message, or None once the other end has gone."""


UnaryHandler: TypeAlias = Callable[[Call[P, Q, B]], Awaitable[R]]
StreamHandler: TypeAlias = Callable[[Call[P, Q, B]], Awaitable[AsyncIterator[R]]]
"""Checks the call and returns the items: what it raises is an error answer, what the iterator raises ends the lines."""
UploadHandler: TypeAlias = Callable[[Call[P, Q, B], AsyncIterator[bytes]], Awaitable[R]]
SocketHandler: TypeAlias = Callable[[Call[P, Q, B], SocketChannel[R, U]], Awaitable[None]]
Written: TypeAlias = Callable[[], Awaitable[str]]
"""The place in the catalog, `origin:epoch:version`, at which all that was written here until now can be read; epoch and
version are 0 when only this node knows yet. Must not raise, and take no longer than a commit."""


_S = TypeVar("_S")  # the object whose method it is
_Answer: TypeAlias = Coroutine[Any, Any, R]
_Marked: TypeAlias = Callable[[_S, Call[P, Q, B]], _Answer[R]]
_MarkedStream: TypeAlias = Callable[[_S, Call[P, Q, B]], _Answer[AsyncIterator[R]]]
_MarkedUpload: TypeAlias = Callable[[_S, Call[P, Q, B], AsyncIterator[bytes]], _Answer[R]]
_MarkedSocket: TypeAlias = Callable[[_S, Call[P, Q, B], SocketChannel[R, U]], _Answer[None]]
_ROUTES = "__answers__"


@overload
def answers(route: Unary[P, Q, B, R]) -> Callable[[_Marked[_S, P, Q, B, R]], _Marked[_S, P, Q, B, R]]: ...


@overload
def answers(route: Stream[P, Q, B, R]) -> Callable[[_MarkedStream[_S, P, Q, B, R]], _MarkedStream[_S, P, Q, B, R]]: ...


@overload
def answers(route: Upload[P, Q, B, R]) -> Callable[[_MarkedUpload[_S, P, Q, B, R]], _MarkedUpload[_S, P, Q, B, R]]: ...


@overload
def answers(
    route: Socket[P, Q, B, R, U],
) -> Callable[[_MarkedSocket[_S, P, Q, B, R, U]], _MarkedSocket[_S, P, Q, B, R, U]]: ...


def answers(route: AnyRoute) -> Callable[[Any], Any]:
    """Marks the method that answers `route`; a method may have several routes. `Handlers.add` finds it."""

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        setattr(method, _ROUTES, (*getattr(method, _ROUTES, ()), route))
        return method

    return mark


@cache
def _marked(kind: type) -> Sequence[tuple[AnyRoute, str]]:
    """The routes that a class answers and the names of its methods; a method that is overridden counts as it is
    there."""
    names = dict.fromkeys(name for each in kind.__mro__ for name in vars(each))
    return [(route, name) for name in names for route in getattr(getattr(kind, name, None), _ROUTES, ())]


async def finish(items: AsyncIterator[object]) -> None:
    """End an iterator that may not have come to its own end."""
    close = getattr(items, "aclose", None)
    if close is not None:
        with anyio.move_on_after(FINISH_DEADLINE_S, shield=True):
            await close()


class Bound(ValueObject, frozen=True):
    """A route and its handler, whose types `Handlers` has matched."""

    route: AnyRoute
    handler: Callable[..., Any]


class Handlers:
    """Filled by the process's `main`, then only read."""

    def __init__(self) -> None:
        self._bound: dict[str, Bound] = {}

    def add(self, *objects: object) -> None:
        """Bind the methods that `@answers` marks. An object without one is a mistake."""
        for each in objects:
            found = _marked(type(each))  # type: ignore[arg-type] # a class is hashable
            assert found, f"{type(each).__name__} answers no route"
            for route, name in found:
                self._bind(route, getattr(each, name))

    def on(self, route: Unary[P, Q, B, R], handler: UnaryHandler[P, Q, B, R]) -> None:
        self._bind(route, handler)

    def stream(self, route: Stream[P, Q, B, R], handler: StreamHandler[P, Q, B, R]) -> None:
        self._bind(route, handler)

    def upload(self, route: Upload[P, Q, B, R], handler: UploadHandler[P, Q, B, R]) -> None:
        self._bind(route, handler)

    def socket(self, route: Socket[P, Q, B, R, U], handler: SocketHandler[P, Q, B, R, U]) -> None:
        self._bind(route, handler)

    def adopt(self, route: AnyRoute, other: "Handlers") -> None:
        """Answer `route` with the handler that `other` has for it."""
        self._bind(route, other._bound[route.name].handler)

    def wrap(self, route: AnyRoute, around: Callable[[Any, Callable[..., Any]], Any]) -> None:
        """Let `around` answer `route`, which is given each call and the handler that there was."""
        inner = self._bound.pop(route.name).handler
        self._bind(route, lambda call: around(call, inner))

    def of(self, route: Route[P, Q, B, R]) -> Callable[..., Any]:
        return self._bound[route.name].handler

    def missing(self, routes: Iterable[AnyRoute]) -> tuple[str, ...]:
        """The names of routes that nothing answers yet."""
        return tuple(route.name for route in routes if route.name not in self._bound)

    def _bind(self, route: Route[P, Q, B, R], handler: Callable[..., Any]) -> None:
        assert route.name not in self._bound, f"{route.name} has a handler already"
        self._bound[route.name] = Bound(route, handler)
