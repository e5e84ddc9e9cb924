"""Choices at random, from one seed: the same in every process."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from hawker.clock import Clock

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
