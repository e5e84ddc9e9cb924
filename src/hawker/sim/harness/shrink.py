"""From a run in which something was found to the shortest one that shows the same: delta debugging over the deeds.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with a bound on the tries, so that
the same seed gives the same story every time.
"""

from collections.abc import Callable, Sequence, Set
from typing import Generic, Protocol, TypeVar

from hawker.proof.violation import Violation
from hawker.sim.harness.trace import Speaker, TraceLine
from hawker.sim.node.kit import WorkerKit
from hawker.sim.worker.simulation import WorkerOutcome, run

TRIES = 400


class Done(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def at(self) -> float: ...


class Planned(Protocol):
    @property
    def seed(self) -> int: ...

    @property
    def deeds(self) -> Sequence[Done]: ...


class Played(Protocol):
    """A run of deeds, of whatever: what shrinking and telling need to know of it."""

    @property
    def plan(self) -> Planned: ...

    @property
    def lines(self) -> Sequence[TraceLine]: ...

    @property
    def found(self) -> Sequence[Violation]: ...

    @property
    def ended_at(self) -> float: ...


P = TypeVar("P", bound=Played)


class Shrinker(Generic[P]):
    """`play` runs the plan with only these deeds."""

    def __init__(self, found: P, play: Callable[[Set[int]], P], tries: int = TRIES) -> None:
        self.shortest = found
        self._kinds = {violation.invariant for violation in found.found[:1]}
        self._play = play
        self._left = tries

    def shrink(self) -> P:
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
        self._shows({deed.number for deed in self.shortest.plan.deeds if deed.at <= at})

    def _without_a_part(self, numbers: Sequence[int], size: int) -> bool:
        """From the end, since what came last matters least."""
        for begin in range(len(numbers) - size, -size, -size):
            rest = {*numbers[: max(0, begin)], *numbers[begin + size :]}
            if self._shows(rest):
                return True
        return False

    def _shows(self, numbers: Set[int]) -> bool:
        if not self._left or len(numbers) == len(self.shortest.plan.deeds):
            return False
        self._left -= 1
        outcome = self._play(numbers)
        shows = any(violation.invariant in self._kinds for violation in outcome.found[:1])
        if shows:
            self.shortest = outcome
        return shows

    def _numbers(self) -> list[int]:
        return [deed.number for deed in self.shortest.plan.deeds]


def shrink(found: WorkerOutcome, kit: WorkerKit, tries: int = TRIES) -> WorkerOutcome:
    return Shrinker(found, lambda numbers: run(found.plan.only(numbers), kit), tries).shrink()
