"""One run of a simulator in virtual time: its plan is drawn from a seed, operation after operation, it is played to its
end, what was found in it is noted, and the shortest run that shows the same is looked for.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.loop import LoopClock, VirtualTimeLoop
from hawker.sim.harness.plan import Chance, Op, P, R, RunOperation, Shrinker, V, do_in_turn, numbered
from hawker.sim.harness.trace import Speaker, Trace
from hawker.value_object import ValueObject

K = TypeVar("K")

MOST_FOUND = 20
"""Violations of one run that are kept."""


def drawn(
    seed: int,
    until_s: float,
    weights: Mapping[V, float],
    one: Callable[[Chance, V, float], tuple[Iterable[Op], float]],
) -> tuple[Op, ...]:
    """A run's operations. `one` says what comes of a verb that is drawn for a moment, and when the next one is drawn;
    moments are in virtual seconds."""
    chance, operations, at = Chance(LoopClock(seed)), list[Op](), 1.0
    while at < until_s:
        more, at = one(chance, chance.weighed(weights), at)
        operations += more
    return numbered(operations)


class SeededRun(ABC, Generic[P, R]):
    """`who` names in a finding what broke by itself."""

    who = "node"

    def __init__(self, plan: P) -> None:
        self._plan = plan
        self._clock = LoopClock(plan.seed)
        self._trace = Trace()
        self._found: list[Violation] = []

    async def play(self) -> R:
        try:
            async with anyio.create_task_group() as tasks:
                await self._run(tasks)
                tasks.cancel_scope.cancel()
        except* Exception as group:  # noqa: BLE001 - whatever breaks is a finding
            for error in group.exceptions:
                self._note([Violation(Invariant.ANSWERS, self.who, f"{type(error).__name__}: {error}")])
        return self._outcome(
            {
                "plan": self._plan,
                "ended_at": self._clock.monotonic(),
                "digest": self._trace.digest,
                "lines": tuple(self._trace.lines),
                "found": tuple(self._found),
            }
        )

    @abstractmethod
    async def _run(self, tasks: TaskGroup) -> None:
        """From the beginning to the end. What is to go on meanwhile runs in `tasks`."""

    @abstractmethod
    def _outcome(self, told: dict[str, Any]) -> R:
        """`told` are the fields that every outcome has, but for the number of answered calls."""

    async def _do_all(self, do: "Callable[[Any], Awaitable[None]]") -> None:
        """Each of the plan's operations at its time, until something is found."""

        async def unless_found(operation: RunOperation[Any]) -> None:
            if not self._found:
                await do(operation)

        await do_in_turn(self._plan.operations, self._clock, unless_found, self._clock.monotonic())

    def _note(self, found: Iterable[Violation]) -> None:
        for violation in found:
            if not self._found:
                self._trace.add(self._clock.monotonic(), Speaker.FOUND, str(violation))
            if len(self._found) < MOST_FOUND and violation not in self._found:
                self._found.append(violation)

    def _say(self, text: str) -> None:
        self._trace.add(self._clock.monotonic(), Speaker.NATURE, text)


class SeededGame(ValueObject, Generic[K, P, R], frozen=True, kw_only=True):
    """How plans of one kind are played: over the parts of a kit, of which `sound` has no bug."""

    sound: K
    run: Callable[[P, K], SeededRun[P, R]]
    loop: Callable[[], asyncio.AbstractEventLoop] = VirtualTimeLoop

    def play(self, plan: P, kit: K | None = None) -> R:
        """The same in every process."""
        return anyio.run(self._play, plan, kit, backend_options={"loop_factory": self.loop})

    async def _play(self, plan: P, kit: K | None) -> R:
        return await self.run(plan, self.sound if kit is None else kit).play()

    def shrink(self, found: R, kit: K, tries: int) -> R:
        """The shortest run with the same finding, as far as so many tries lead."""

        def again(numbers: Set[int]) -> R:
            return self.play(found.plan.only(numbers), kit)

        return Shrinker(found, again, tries).shrink()
