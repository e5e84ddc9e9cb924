"""The worker's connection with the edge of its host, while there is one: what the worker asks, and the answers."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import anyio
from anyio.abc import ByteStream

from hawker.errors import Unavailable
from hawker.feed import (
    AskReport,
    AskRoute,
    CloseMachine,
    EdgeReport,
    ExplainedDoor,
    MachineClosed,
    RouteExplained,
    ToEdge,
    frame,
)
from hawker.ids import AppName, InstanceId, MachineId

EdgeWord: TypeAlias = MachineClosed | EdgeReport | RouteExplained
_REPORT_WITHIN_S = 2.0


class EdgeLine:
    """The connection with the edge, while there is one."""

    def __init__(self) -> None:
        self._stream: ByteStream | None = None
        self._sending = anyio.Lock()
        self._number = 0
        self._calls: dict[int, tuple[anyio.Event, list[EdgeWord]]] = {}

    @property
    def is_up(self) -> bool:
        return self._stream is not None

    async def send(self, *messages: ToEdge) -> None:
        """What cannot be sent need not be: a new connection begins with everything."""
        if self._stream is not None and messages:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async with self._sending:
                    await self._stream.send(b"".join(map(frame, messages)))

    async def close(self, machine_id: MachineId, instance: InstanceId, wait_s: float) -> None:
        """Returns when nobody is in the machine, or comes in, any more; or after `wait_s`, or when there is no edge."""
        asked = partial(CloseMachine, id=machine_id, instance=instance, wait_s=wait_s)
        await self._call(lambda call: asked(call=call), wait_s + 1)

    async def report(self, *, apps: bool = False) -> EdgeReport:
        """With the figures of `apps`, if they are wanted. Raises `Unavailable` when there is no edge."""
        found = await self._call(lambda call: AskReport(call=call, apps=apps), _REPORT_WITHIN_S)
        if not isinstance(found, EdgeReport):
            raise Unavailable("the edge of this host is not there: it begins with the first machine that needs it")
        return found

    async def explain(self, app: AppName, host: str, port: int, *, tls: bool, udp: bool) -> tuple[ExplainedDoor, ...]:
        """Raises `Unavailable` when there is no edge, or an older one that does not explain."""
        asked = partial(AskRoute, app=app, host=host, port=port, tls=tls, udp=udp)
        found = await self._call(lambda call: asked(call=call), _REPORT_WITHIN_S)
        if not isinstance(found, RouteExplained):
            raise Unavailable("the edge of this host does not answer: it begins with the first machine that needs it")
        return found.doors

    def hear(self, message: EdgeWord) -> None:
        waiting = self._calls.get(message.call)
        if waiting is not None:
            waiting[1].append(message)
            waiting[0].set()

    def connected(self, stream: ByteStream) -> None:
        self._stream = stream

    def lost(self, stream: ByteStream) -> None:
        if self._stream is stream:
            self._stream = None
        for event, _ in self._calls.values():
            event.set()

    async def _call(self, message: Callable[[int], ToEdge], within_s: float) -> EdgeWord | None:
        if self._stream is None:
            return None
        self._number += 1
        number, event, answer = self._number, anyio.Event(), list[EdgeWord]()
        self._calls[number] = event, answer
        try:
            with anyio.move_on_after(within_s):
                await self.send(message(number))
                await event.wait()
        finally:
            del self._calls[number]
        return answer[0] if answer else None
