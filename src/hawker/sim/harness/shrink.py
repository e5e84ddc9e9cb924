"""From a run in which something was found to the shortest one that shows the same: delta debugging over the operations.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with a bound on the tries, so that
the same seed gives the same story every time.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any, Generic, TypeVar

from hawker.sim.harness.plan import RunOutcome
from hawker.sim.harness.trace import Speaker

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
