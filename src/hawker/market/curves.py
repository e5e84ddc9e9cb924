"""Utility curves: from what a resource would be like to how desirable that is, as points that are joined by straight
lines. Pure.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_POINTS = 32


@dataclass(frozen=True, slots=True)
class Curve:
    """`points` are (value, desirability): values grow, desirabilities are between 0 and 1. Beyond its ends a curve goes
    on level."""

    points: tuple[tuple[float, float], ...]
    _values: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_values", tuple(value for value, _ in self.points))

    def at(self, value: float) -> float:
        points = self.points
        after = bisect_right(self._values, value)
        if after == 0:
            return points[0][1]
        if after == len(points):
            return points[-1][1]
        (left, low), (right, high) = points[after - 1], points[after]
        return low + (high - low) * (value - left) / (right - left)


def curve(points: Sequence[Sequence[float]], *, most: float | None = None) -> Curve:
    """`most` is the greatest value there can be. Raises `ValueError` that begins with the place in the list."""
    if not 1 <= len(points) <= MOST_POINTS:
        raise ValueError(f": a curve has 1 to {MOST_POINTS} points, not {len(points)}")
    made: list[tuple[float, float]] = []
    for index, point in enumerate(points):
        if len(point) != 2:
            raise ValueError(f"[{index}]: a point is [value, desirability], not {list(point)}")
        value, desirability = point
        if not 0 <= value <= (float("inf") if most is None else most):
            raise ValueError(f"[{index}]: the value {value:g} is not between 0 and {'any' if most is None else most}")
        if not 0 <= desirability <= 1:
            raise ValueError(f"[{index}]: the desirability {desirability:g} is not between 0 and 1")
        if made and value <= made[-1][0]:
            raise ValueError(f"[{index}]: values must grow, and {value:g} comes after {made[-1][0]:g}")
        made.append((float(value), float(desirability)))
    return Curve(tuple(made))
