"""Passing calls on, by the route table: to the node that has what the path names, to the home of its app, or to the
node that the broker stands beside. What the caller sent goes along, and its name; the answer is the owner's own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import anyio

from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.route import AnyRoute, B, Call, P, Q, R, Socket, Stream, U, Unary, Upload
from hawker.errors import HawkerError, Moved, NotFound, Unavailable
from hawker.gateway.fan_out import Reach
from hawker.gateway.owners import HomeElection, Kind, Owners
from hawker.ids import AppName, NodeId

AnyCall: TypeAlias = Call[Any, Any, Any]
Choose: TypeAlias = Callable[[AnyCall], Awaitable[NodeId]]
"""A function that says to which node a call goes. Raises `NotFound` or `Unavailable`."""
Before: TypeAlias = Callable[[AnyCall, NodeId], Awaitable[None]]
"""A function that is called before a call goes to a node."""


class Forwarding:
    """`own` is the node that the broker stands beside."""

    def __init__(self, owners: Owners, reach: Reach, own: NodeId, home_election: HomeElection) -> None:
        self.owners = owners
        self._home_election = home_election
        self.reach = reach
        self._own = own

    def bind(self, handlers: Handlers, route: AnyRoute, choose: Choose, before: Before | None = None) -> None:
        match route:
            case Unary():
                handlers.on(route, self.unary(route, choose, before))
            case Stream():
                handlers.stream(route, self._stream(route, choose))
            case Upload():
                handlers.upload(route, self._upload(route, choose))
            case Socket():
                handlers.socket(route, self._socket(route, choose))

    def bind_owned(self, handlers: Handlers, route: AnyRoute, kind: Kind, before: Before | None = None) -> None:
        """A call about a machine or volume that the path names: where its owner says that it is not there, it is looked
        for once more."""
        if isinstance(route, Unary):
            handlers.on(route, self._owned(route, kind, before))
        else:
            self.bind(handlers, route, self.to_owner(kind))

    async def to_own(self, call: AnyCall) -> NodeId:
        return self._own

    async def to_home(self, call: AnyCall) -> NodeId:
        """The home of the app that the path names; another node becomes its home if that was forgotten."""
        return await self.home_of(AppName(call.params.app_name), call.behalf, await self.owners.hint(call.version))

    async def home_of(self, app: AppName, behalf: str, hint: NodeId | None) -> NodeId:
        """The home of an app. `hint` is where the caller wrote what cannot be read here yet. Raises `NotFound`,
        `Unavailable`."""
        home = await self._home_election.home(app, behalf)
        if home is not None:
            return home
        if self.owners.directory.nodes_of_app(app):
            raise Unavailable(f"the home of app '{app}' has not told of it yet: try again in a moment")
        if hint is not None:
            return hint
        raise NotFound("app not found")

    def to_owner(self, kind: Kind) -> Choose:
        async def choose(call: AnyCall) -> NodeId:
            return await self._owner(kind, call, await self.owners.hint(call.version))

        return choose

    async def unary_at(self, node: NodeId, route: Unary[P, Q, B, R], call: Call[P, Q, B]) -> R:
        """The owner's answer, or its error."""
        caller = self.reach.caller(node, call.behalf)
        with self.reach.errors(node, harmless=route.method == "GET"):
            return await caller.call(
                route,
                params=call.params,
                query=call.query,
                body=call.body,
                nonce=call.nonce,
                idempotency_key=call.idempotency_key,
                deploy_term=call.deploy_term,
                timeout_s=min(route.timeout_s, call.deadline_s or route.timeout_s),
                metadata=call.metadata,
            )

    def unary(
        self, route: Unary[P, Q, B, R], choose: Choose, before: Before | None = None
    ) -> Callable[[Call[P, Q, B]], Awaitable[R]]:
        async def handle(call: Call[P, Q, B]) -> R:
            node = await choose(call)
            if before is not None:
                await before(call, node)
            return await self.unary_at(node, route, call)

        return handle

    def _owned(
        self, route: Unary[P, Q, B, R], kind: Kind, before: Before | None
    ) -> Callable[[Call[P, Q, B]], Awaitable[R]]:
        async def at(node: NodeId, call: Call[P, Q, B]) -> R:
            if before is not None:
                await before(call, node)
            return await self.unary_at(node, route, call)

        async def handle(call: Call[P, Q, B]) -> R:
            hint = await self.owners.hint(call.version)
            node = await self._owner(kind, call, hint)
            try:
                return await at(node, call)
            except Moved as error:
                if not error.node or error.node == node:
                    raise
                other: NodeId | None = NodeId(error.node)
                self.owners.remember(kind, _named(kind, call), NodeId(error.node))
                del error
            except NotFound as error:
                other = await self._elsewhere(kind, call, hint, node)
                if other is None:
                    raise
                del error
            assert other is not None
            return await at(other, call)

        return handle

    async def _owner(self, kind: Kind, call: AnyCall, hint: NodeId | None) -> NodeId:
        name = _named(kind, call)
        known = self.owners.known(kind, name)
        if known is not None:
            return known
        found = await self.owners.ask(kind, name, self._candidates(call, hint), call.behalf)
        if found is None:
            raise NotFound(f"{kind} not found")
        return NodeId(found.node)

    async def _elsewhere(self, kind: Kind, call: AnyCall, hint: NodeId | None, node: NodeId) -> NodeId | None:
        """Another node that has it, after this one said "not found"; None when that was the right one to ask."""
        name = _named(kind, call)
        again = self.owners.known(kind, name)
        if again is not None and again != node:
            return again
        if await self.owners.ask(kind, name, (node,), call.behalf):
            return None
        found = await self.owners.ask(kind, name, self._candidates(call, hint), call.behalf, without=node)
        return None if found is None or found.node == node else NodeId(found.node)

    def _candidates(self, call: AnyCall, hint: NodeId | None) -> tuple[NodeId, ...]:
        """Who may have it: the nodes that know its app, then, since the catalog may not say yet that one knows it, the
        others of this region; all when the path does not name the app. Not those that are down."""
        directory, app = self.owners.directory, getattr(call.params, "app_name", None)
        up = [node for node in directory.nodes() if not node.is_down]
        if app is None:
            return tuple(node.id for node in up)
        knows = self.owners.nodes_of_app(AppName(app), hint)
        near = [node.id for node in up if node.region == directory.region] if knows else []
        return tuple(dict.fromkeys([*knows, *near]))

    def _stream(
        self, route: Stream[P, Q, B, R], choose: Choose
    ) -> Callable[[Call[P, Q, B]], Awaitable[AsyncIterator[R]]]:
        async def handle(call: Call[P, Q, B]) -> AsyncIterator[R]:
            node = await choose(call)
            caller = self.reach.caller(node, call.behalf)
            opening = caller.stream(route, params=call.params, query=call.query, body=call.body)
            with self.reach.errors(node, harmless=route.method == "GET"):
                items = await opening.__aenter__()
            return _Passed(opening, items)

        return handle

    def _upload(
        self, route: Upload[P, Q, B, R], choose: Choose
    ) -> Callable[[Call[P, Q, B], AsyncIterator[bytes]], Awaitable[R]]:
        async def handle(call: Call[P, Q, B], data: AsyncIterator[bytes]) -> R:
            node = await choose(call)
            caller = self.reach.caller(node, call.behalf)
            with self.reach.errors(node, harmless=False):
                return await caller.upload(route, data, params=call.params, query=call.query)

        return handle

    def _socket(
        self, route: Socket[P, Q, B, R, U], choose: Choose
    ) -> Callable[[Call[P, Q, B], SocketChannel[R, U]], Awaitable[None]]:
        async def handle(call: Call[P, Q, B], channel: SocketChannel[R, U]) -> None:
            node = await choose(call)
            caller = self.reach.caller(node, call.behalf)
            with self.reach.errors(node, harmless=False):
                failures: list[HawkerError] = []
                async with caller.socket(route, call.body, params=call.params, query=call.query) as there:
                    await _converse(channel, there, failures)
                for error in failures:
                    raise error

        return handle


class _Passed(AsyncIterator[R]):
    """The items of a stream at another node, which is closed with this, also if none was ever asked for."""

    def __init__(self, opened: AbstractAsyncContextManager[AsyncIterator[R]], items: AsyncIterator[R]) -> None:
        self._opened: AbstractAsyncContextManager[AsyncIterator[R]] | None = opened
        self._items = items

    async def __anext__(self) -> R:
        return await anext(self._items)

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)


async def _converse(near: SocketChannel[Any, Any], far: SocketChannel[Any, Any], failures: list[HawkerError]) -> None:
    """Both ways, until either end has gone. What went wrong is put into `failures`: the first counts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_carry, near, far, failures, tasks.cancel_scope)
        tasks.start_soon(_carry, far, near, failures, tasks.cancel_scope)


async def _carry(
    origin: SocketChannel[Any, Any],
    target: SocketChannel[Any, Any],
    failures: list[HawkerError],
    scope: anyio.CancelScope,
) -> None:
    try:
        while (message := await origin.receive()) is not None:
            await target.send(message)
    except HawkerError as error:
        failures.append(error)
    scope.cancel()


def _named(kind: Kind, call: AnyCall) -> str:
    return str(getattr(call.params, f"{kind}_id"))
