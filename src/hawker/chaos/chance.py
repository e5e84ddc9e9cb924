"""Chance from a seed: the same seed deals the same operations and faults, in the same order. Time is the host's own, so
what they meet differs from run to run.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hawker.clock import ManualClock

T = TypeVar("T")


class SeededChance:
    """One stream of decisions. Each client has its own, so that a slow one does not change what the others do."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._draw: Callable[[], float] = ManualClock(seed=(seed << 16) + stream).random

    def happens(self, probability: float) -> bool:
        return self._draw() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._draw()

    def choice(self, options: Sequence[T]) -> T:
        return options[int(self._draw() * len(options))]

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        """By whole weights."""
        left = self._draw() * sum(weight for weight, _ in options)
        for weight, option in options:
            left -= weight
            if left < 0:
                return option
        return options[-1][1]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """Fisher and Yates."""
        dealt = list(options)
        for last in range(len(dealt) - 1, 0, -1):
            other = int(self._draw() * (last + 1))
            dealt[last], dealt[other] = dealt[other], dealt[last]
        return dealt
