"""One run of a simulator in virtual time: its plan is drawn from a seed, operation after operation, it is played to its
end, what was found in it is noted, and the shortest run that shows the same is looked for.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from hawker.containment import LOGGER
from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.loop import LoopClock, VirtualTimeLoop
from hawker.sim.harness.plan import TRIES, Chance, Op, P, R, RunOperation, Shrinker, V, do_in_turn, numbered
from hawker.sim.harness.trace import RunLedger, Speaker, Trace
from hawker.value_object import ValueObject

K = TypeVar("K")

_MEMORY = Path("/dev/shm")


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
    """`who` names in a finding what broke by itself. The clock and the ledger are the run's own where its world brings
    none."""

    who = "node"

    def __init__(self, plan: P, clock: LoopClock | None = None, told: RunLedger | None = None) -> None:
        self._plan = plan
        self._clock = LoopClock(plan.seed) if clock is None else clock
        self._told = RunLedger(self._clock, Trace()) if told is None else told

    async def play(self) -> R:
        with ExitStack() as self._goes:
            self._goes.enter_context(UnforeseenErrors(self.who, self._note))
            try:
                async with anyio.create_task_group() as tasks:
                    await self._run(tasks)
                    tasks.cancel_scope.cancel()
            except* Exception as group:  # noqa: BLE001 - whatever breaks is a finding
                said = [f"{type(error).__name__}: {error}" for error in _leaves(group)]
                self._note(Violation(Invariant.ANSWERS, self.who, each) for each in said)
        return self._outcome(
            {
                "plan": self._plan,
                "ended_at": self._clock.monotonic(),
                "digest": self._told.trace.digest,
                "lines": tuple(self._told.trace.lines),
                "found": tuple(self._found),
            }
        )

    @abstractmethod
    async def _run(self, tasks: TaskGroup) -> None:
        """From the beginning to the end. What is to go on meanwhile runs in `tasks`."""

    @abstractmethod
    def _outcome(self, told: dict[str, Any]) -> R:
        """`told` are the fields that every outcome has, but for the number of answered calls."""

    @property
    def _found(self) -> Sequence[Violation]:
        return self._told.found

    def _folder(self) -> Path:
        """A new one, in memory, that goes with the run."""
        made = TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)
        return Path(self._goes.enter_context(made))

    async def _do_all(self, do: "Callable[[Any], Awaitable[None]]") -> None:
        """Each of the plan's operations at its time, until something is found."""

        async def unless_found(operation: RunOperation[Any]) -> None:
            if not self._found:
                await do(operation)

        await do_in_turn(self._plan.operations, self._clock, unless_found, self._clock.monotonic())

    def _note(self, found: Iterable[Violation]) -> None:
        self._told.find(found)

    def _say(self, text: str) -> None:
        self._told.say(Speaker.NATURE, text)


class UnforeseenErrors(logging.Handler):
    """Takes what the product contains within, and would have ended on else, for a finding."""

    def __init__(self, who: str, note: Callable[[Iterable[Violation]], None]) -> None:
        super().__init__()
        self._who = who
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._note([Violation(Invariant.ANSWERS, self._who, f"contained: {type(error).__name__}: {error}")])

    def __enter__(self) -> None:
        logging.getLogger(LOGGER).addHandler(self)

    def __exit__(self, *raised: object) -> None:
        logging.getLogger(LOGGER).removeHandler(self)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


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

    def shrink(self, found: R, kit: K, tries: int = TRIES) -> R:
        """The shortest run with the same finding, as far as so many tries lead."""

        def again(numbers: Set[int]) -> R:
            return self.play(found.plan.only(numbers), kit)

        return Shrinker(found, again, tries).shrink()
