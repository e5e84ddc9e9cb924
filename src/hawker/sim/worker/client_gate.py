"""Where clients find the daemon, while one lives. A call dies with the daemon that it was made to: no answer comes."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from hawker.errors import HawkerError
from hawker.sim.node.sim_worker import SimWorker

T = TypeVar("T")


class SimConnectionLost(Exception):
    """The connection was cut: whether the call took effect is not known."""


class _Reply(Generic[T]):
    def __init__(self) -> None:
        self.came = anyio.Event()
        self.value: T | None = None
        self.error: HawkerError | SimConnectionLost | None = SimConnectionLost()


class ClientGate:
    def __init__(self) -> None:
        self.worker: SimWorker | None = None
        self._opened = anyio.Event()
        self._awaited: list[_Reply[object]] = []

    def open(self, worker: SimWorker) -> None:
        self.worker = worker
        self._opened.set()

    def shut(self) -> None:
        self.worker = None
        if self._opened.is_set():
            self._opened = anyio.Event()
        for reply in self._awaited:
            reply.came.set()
        self._awaited.clear()

    async def call(self, act: Callable[[SimWorker], Awaitable[T]]) -> T:
        """What the daemon answers, once there is one. Raises what it refuses with, and `SimConnectionLost`."""
        while self.worker is None:
            await self._opened.wait()
        reply: _Reply[object] = _Reply()
        self._awaited.append(reply)
        if not self.worker.tasks.cancel_scope.cancel_called:  # a task of one that is dying would never be cancelled
            self.worker.tasks.start_soon(self._answer, self.worker, act, reply)
        await reply.came.wait()
        if reply.error is not None:
            raise reply.error
        return reply.value  # type: ignore[return-value]

    async def _answer(self, worker: SimWorker, act: Callable[[SimWorker], Awaitable[T]], reply: _Reply[object]) -> None:
        """In a task of the daemon's. What is no refusal breaks the daemon."""
        try:
            reply.value, reply.error = await act(worker), None
        except HawkerError as error:
            reply.error = error
        if reply in self._awaited:
            self._awaited.remove(reply)
            reply.came.set()
