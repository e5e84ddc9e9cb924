"""Where the daemon may die: at every edge of every effect on the host, before and after every step of every flow."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio.lowlevel
from msgspec.structs import replace

from hawker.fsm.contract import Flow, Step

T = TypeVar("T")


class Death(BaseException):
    """The daemon is killed: no code of it may catch this."""


class CrashPoints:
    """Counts the edges of all effects on the host, two to an effect, and burns through at a chosen one; or at a chosen
    place, as `create.rootfs inside`. `passed` are the places that were reached."""

    def __init__(self) -> None:
        self.edges = 0
        self.burns_at: int | None = None
        self.burns_in: str | None = None
        self.step = ""
        self.passed: set[str] = set()

    def burns(self) -> bool:
        self.edges += 1
        return self.edges == self.burns_at or self._is_place(f"{self.step} inside")

    def reach(self, place: str) -> None:
        if self._is_place(place):
            raise Death

    def _is_place(self, place: str) -> bool:
        self.passed.add(place)
        if place != self.burns_in:
            return False
        self.burns_in = None
        return True

    async def pass_edge(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.burns():
            raise Death


def with_crash_points(flow: Flow[Any], crash_points: CrashPoints) -> Flow[Any]:
    """The flow with an edge before and after each step and each undo."""

    def between(name: str, call: Callable[[Any], Awaitable[T]]) -> Callable[[Any], Awaitable[T]]:
        async def called(context: object) -> T:
            crash_points.reach(f"{name} before")
            crash_points.step = name
            found = await call(context)
            crash_points.step = ""
            crash_points.reach(f"{name} after")
            return found

        return called

    def step(row: Step) -> Step:
        name = f"{flow.name}.{row.name}"
        undo = row.undo and between(f"{name} undo", row.undo)
        return replace(row, do=between(name, row.do), undo=undo)

    return replace(flow, steps=tuple(map(step, flow.steps)))
