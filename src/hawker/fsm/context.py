"""What a step sees: its run's resource, input and earlier results, the shared dependencies, and children."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.failpoint import inside
from hawker.fsm.contract import Resource, Step
from hawker.fsm.run import Run, State
from hawker.ids import RunId

D = TypeVar("D")
T = TypeVar("T")

StartChild = Callable[[str, str, Resource, msgspec.Struct], Awaitable[Any]]


class Context(Generic[D]):
    """Keeps `contract.StepContext` for one attempt of one step, or of its undo."""

    __slots__ = ("_calls", "_results", "_run", "_start_child", "_step", "clock", "deps", "input")

    def __init__(
        self,
        run: Run,
        step: Step,
        input: msgspec.Struct,
        results: Mapping[str, bytes],
        deps: D,
        clock: Clock,
        start_child: StartChild,
    ) -> None:
        self._run = run
        self._step = step
        self._results = results
        self._start_child = start_child
        self._calls: dict[str, int] = {}
        self.input: Any = input
        self.deps = deps
        self.clock = clock

    @property
    def run_id(self) -> RunId:
        return self._run.id

    @property
    def resource(self) -> Resource:
        return self._run.resource

    @property
    def attempt(self) -> int:
        return self._run.attempt

    def result(self, step: str, type: type[T]) -> T:
        if step not in self._results:
            raise LookupError(f"step {step} of run {self._run.id} has not finished")
        return msgspec.msgpack.decode(self._results[step], type=type)

    def finished(self, step: str) -> bool:
        return step in self._results

    def reach(self, point: str) -> None:
        declared = f"undo.{point}" if self._run.state is State.UNDOING else point
        assert declared in self._step.points, f"step {self._step.name} declares no point {declared}"
        inside(point)

    async def child(self, flow: str, resource: Resource, input: msgspec.Struct) -> Any:
        return await self._start_child(self._slot(flow, resource), flow, resource, input)

    def _slot(self, flow: str, resource: Resource) -> str:
        """Names this call of this attempt the same way after a crash; another attempt starts a child of its own."""
        phase = "undo " if self._run.state is State.UNDOING else ""
        call = f"{phase}{self._run.step} {self._run.attempt} {flow} {resource.kind} {resource.id}"
        self._calls[call] = self._calls.get(call, 0) + 1
        return f"{call} {self._calls[call]}"
