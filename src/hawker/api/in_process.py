"""Calls within the process: the same handlers, the same types and the same errors, without HTTP between.

Used where every role runs in one process. Nothing is encoded, so the two sides share the frozen values.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, Unpack

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream

from hawker.api.call_metadata import CallMetadata, read_behalf
from hawker.api.caller import CallOptions
from hawker.api.failure import Overdue
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers, In_co, Out_contra, SocketChannel, Written, finish
from hawker.api.route import B, Call, P, Q, R, Route, Socket, Stream, U, Unary, Upload, writes
from hawker.clock import Clock
from hawker.errors import HawkerError, Unavailable
from hawker.ids import new_ulid

_QUEUE = 16


class InProcessChannel(Generic[Out_contra, In_co]):
    """One of two connected ends. An error is passed as an item, and raised where it is received."""

    def __init__(self, outgoing: ObjectSendStream[Any], incoming: ObjectReceiveStream[Any]) -> None:
        self._outgoing, self._incoming = outgoing, incoming

    async def send(self, message: Out_contra) -> None:
        await self._put(message)

    async def receive(self) -> In_co | None:
        """Raises the error that the other end sent, if it sent one."""
        try:
            item: In_co | HawkerError = await self._incoming.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None
        if isinstance(item, HawkerError):
            raise item
        return item

    async def fail(self, error: HawkerError) -> None:
        with suppress(Unavailable):
            await self._put(error)

    async def close(self) -> None:
        await self._outgoing.aclose()
        await self._incoming.aclose()

    async def _put(self, item: object) -> None:
        try:
            await self._outgoing.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise Unavailable("the other end has gone") from error


def _pair() -> tuple[InProcessChannel[Any, Any], InProcessChannel[Any, Any]]:
    to_there, at_there = anyio.create_memory_object_stream[Any](_QUEUE)
    to_here, at_here = anyio.create_memory_object_stream[Any](_QUEUE)
    return InProcessChannel(to_there, at_here), InProcessChannel(to_here, at_there)


async def _converse(handler: Callable[..., Awaitable[None]], call: object, channel: InProcessChannel[Any, Any]) -> None:
    try:
        await handler(call, channel)
    except HawkerError as error:
        await channel.fail(error)
    finally:
        await channel.close()


class InProcessCaller:
    """A `Caller` that calls the handlers itself, on behalf of whom `Call.behalf` names."""

    def __init__(self, handlers: Handlers, clock: Clock, behalf: str, written: Written | None = None) -> None:
        self._handlers = handlers
        self._written = written
        self._clock = clock
        name, token_ids = read_behalf(behalf)
        self._grant = Everything(name, token_ids=token_ids)

    async def call(self, route: Unary[P, Q, B, R], **options: Unpack[CallOptions[P, Q, B]]) -> R:
        """Raises `Overdue` when its time runs out."""
        limit_s = options.get("timeout_s") or route.timeout_s
        call = self._made(route, {**options, "timeout_s": limit_s})
        with anyio.move_on_after(limit_s):
            answer: R = await self._handlers.of(route)(call)
            if self._written is not None and writes(route) and call.metadata.version is None:
                call.metadata.version = await self._written()
            return answer
        raise Overdue(f"no answer within {limit_s:g} s")

    @asynccontextmanager
    async def stream(
        self, route: Stream[P, Q, B, R], *, params: P | None = None, query: Q | None = None, body: B | None = None
    ) -> AsyncIterator[AsyncIterator[R]]:
        call = self._made(route, {"params": params, "query": query, "body": body})
        items: AsyncIterator[R] = await self._handlers.of(route)(call)
        try:
            yield items
        finally:
            await finish(items)

    async def upload(
        self,
        route: Upload[P, Q, B, R],
        data: AsyncIterator[bytes],
        *,
        params: P | None = None,
        query: Q | None = None,
    ) -> R:
        answer: R = await self._handlers.of(route)(self._made(route, {"params": params, "query": query}), data)
        return answer

    @asynccontextmanager
    async def socket(
        self, route: Socket[P, Q, B, R, U], body: B, *, params: P | None = None, query: Q | None = None
    ) -> AsyncIterator[SocketChannel[U, R]]:
        call = self._made(route, {"params": params, "query": query, "body": body})
        here, there = _pair()
        async with anyio.create_task_group() as group:
            group.start_soon(_converse, self._handlers.of(route), call, there)
            try:
                yield here
            finally:
                await here.close()
                group.cancel_scope.cancel()

    def _made(self, route: Route[P, Q, B, Any], given: CallOptions[P, Q, B]) -> Call[P, Q, B]:
        params, query, body = given.get("params"), given.get("query"), given.get("body")
        return Call(
            params=route.params() if params is None else params,
            query=route.query() if query is None else query,
            body=route.body() if body is None else body,
            grant=self._grant,
            request_id=new_ulid(self._clock),
            nonce=given.get("nonce"),
            idempotency_key=given.get("idempotency_key"),
            deploy_term=given.get("deploy_term"),
            metadata=given.get("metadata") or CallMetadata(),
            deadline_s=given.get("timeout_s"),
        )
