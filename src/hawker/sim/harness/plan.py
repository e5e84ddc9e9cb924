"""A run as values: operations of clients and faults, drawn by chance from a seed before anything happens, so that a run
can be cut short; what came of it, the shortest run that shows the same, and its story.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

from msgspec.structs import replace

from hawker.clock import Clock
from hawker.proof.violation import Violation
from hawker.sim.harness.trace import _WORDS_MAX, Speaker, TraceLine
from hawker.value_object import ValueObject

V = TypeVar("V", bound=StrEnum)
Op = TypeVar("Op", bound="RunOperation[Any]")
P = TypeVar("P", bound="RunPlan[Any]")

NATURE = "nature"
"""The actor whose operations are faults."""


class RunOperation(ValueObject, Generic[V], frozen=True):
    """`number` names it in a story. `at` is in virtual seconds. `label` names what it is about, by its order. `amount`
    and `word` say how much and which, as the verb takes them."""

    number: int
    at: float
    actor: str
    """Who does it, by a name of the simulator's."""
    verb: V
    label: str = ""
    amount: float = 0.0
    word: str = ""


class RunPlan(ValueObject, Generic[Op], frozen=True):
    """What a seed stands for. Each simulator adds how its world is."""

    seed: int
    """All the rest follows from it."""
    operations: tuple[Op, ...]

    def only(self, numbers: Set[int]) -> Self:
        """This world with fewer operations."""
        return replace(self, operations=tuple(each for each in self.operations if each.number in numbers))

    def of(self, actor: str) -> tuple[Op, ...]:
        return tuple(each for each in self.operations if each.actor == actor)


class RunOutcome(ValueObject, Generic[P], frozen=True, kw_only=True):
    """What came of a plan. `operations` counts the calls of clients that were answered; `ended_at` is in virtual
    seconds."""

    plan: P
    operations: int
    ended_at: float
    digest: str
    """Of all lines: the same for the same seed and code."""
    lines: tuple[TraceLine, ...]
    found: tuple[Violation, ...]


def numbered(operations: Iterable[Op]) -> tuple[Op, ...]:
    """In the order of their times, numbered from 1."""
    ordered = sorted(operations, key=lambda each: each.at)
    return tuple(replace(each, number=number) for number, each in enumerate(ordered, 1))


async def do_in_turn(
    operations: Iterable[Op], clock: Clock, do: Callable[[Op], Awaitable[None]], began: float = 0.0
) -> None:
    """One actor's operations, each at its time after `began`, or as soon as the one before is done."""
    for operation in operations:
        await clock.sleep(max(0.0, began + operation.at - clock.monotonic()))
        await do(operation)


# Choices at random, from one seed: the same in every process.

T = TypeVar("T")


class Chance:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def happens(self, share: float) -> bool:
        """True in this share of the cases."""
        return self._clock.random() < share

    def between(self, low: int, high: int) -> int:
        """A whole number; both ends may come."""
        return low + int(self._clock.random() * (high - low + 1))

    def one_of(self, values: Sequence[T]) -> T:
        return values[int(self._clock.random() * len(values))]

    def weighed(self, weights: Mapping[T, float]) -> T:
        """One of the keys, as often as its weight says."""
        point = self._clock.random() * sum(weights.values())
        for value, weight in weights.items():
            point -= weight
            if point < 0:
                return value
        return next(reversed(list(weights)))


# From a run in which something was found to the shortest one that shows the same: delta debugging over the
# operations. Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with a bound on the
# tries, so that the same seed gives the same story every time.

TRIES = 400


R = TypeVar("R", bound=RunOutcome[Any])


class Shrinker(Generic[R]):
    """`play` runs the plan with only these operations."""

    def __init__(self, found: R, play: Callable[[Set[int]], R], tries: int = TRIES) -> None:
        self.shortest = found
        self._kinds = {violation.invariant for violation in found.found[:1]}
        self._play = play
        self._left = tries

    def shrink(self) -> R:
        self._cut_the_end()
        parts = 2
        while self._left and (numbers := self._numbers()):
            size = max(1, -(-len(numbers) // parts))
            if self._without_a_part(numbers, size):
                parts = max(2, parts - 1)
            elif size == 1:
                break
            else:
                parts = min(len(numbers), parts * 2)
        return self.shortest

    def _cut_the_end(self) -> None:
        """What was done after it was found has nothing to do with it."""
        at = next((line.at for line in self.shortest.lines if line.kind is Speaker.FOUND), self.shortest.ended_at)
        self._shows({operation.number for operation in self.shortest.plan.operations if operation.at <= at})

    def _without_a_part(self, numbers: Sequence[int], size: int) -> bool:
        """From the end, since what came last matters least."""
        for begin in range(len(numbers) - size, -size, -size):
            rest = {*numbers[: max(0, begin)], *numbers[begin + size :]}
            if self._shows(rest):
                return True
        return False

    def _shows(self, numbers: Set[int]) -> bool:
        if not self._left or len(numbers) == len(self.shortest.plan.operations):
            return False
        self._left -= 1
        outcome = self._play(numbers)
        shows = any(violation.invariant in self._kinds for violation in outcome.found[:1])
        if shows:
            self.shortest = outcome
        return shows

    def _numbers(self) -> list[int]:
        return [operation.number for operation in self.shortest.plan.operations]


def story(outcome: RunOutcome[Any], of: int, command: str) -> Iterator[str]:
    """`of` how many operations this is left; `command` repeats it."""
    count = len(outcome.plan.operations)
    yield f"The shortest story of seed {outcome.plan.seed}, {count} of its {of} planned operations:"
    for line in outcome.lines:
        if line.kind is Speaker.FOUND:
            break
        if line.kind is not Speaker.COMMIT:
            yield f"  {_told(line)}"
    for violation in outcome.found:
        yield f"  FOUND: {violation}"
    yield f"Again: {command}"


def only_option(outcome: RunOutcome[Any]) -> str:
    """The option that plays these operations of the seed's plan and no others."""
    return "--only " + ",".join(str(operation.number) for operation in outcome.plan.operations)


def _told(line: TraceLine) -> str:
    minutes, seconds = divmod(line.at, 60)
    who = "" if line.kind is Speaker.CLIENT else f"{line.kind.value}: "
    text = f"{int(minutes):02d}:{seconds:06.3f}  {who}{line.text}"
    return text if len(text) <= _WORDS_MAX else f"{text[: _WORDS_MAX - 3]}..."
