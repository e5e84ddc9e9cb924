"""What the operator prefers: the curves and weights of the market, and its limits, from a TOML file that is read once.

An unknown key, a value of the wrong type or a curve that goes back is an error that names the key.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from hawker.deferred import deferred
from hawker.errors import CannotStart

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = deferred("tomllib")

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


# Utility curves: from what a resource would be like to how desirable that is, as points that are joined by straight
# lines. Pure.

_CURVES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "cpu": ((0.0, 1.0), (0.8, 0.85), (0.95, 0.3), (1.0, 0.0)),
    "memory": ((0.0, 1.0), (0.8, 0.85), (0.95, 0.3), (1.0, 0.0)),
    "disk": ((0.0, 1.0), (0.85, 0.85), (0.97, 0.2), (1.0, 0.0)),
    "gpu": ((0.0, 0.8), (1.0, 1.0)),
    "image": ((0.0, 1.0), (16.0, 0.8), (256.0, 0.4), (2048.0, 0.1), (16384.0, 0.0)),
    "spread": ((0.0, 1.0), (1.0, 0.7), (4.0, 0.4), (16.0, 0.0)),
}
_WEIGHTS: Mapping[str, float] = {"cpu": 1.0, "memory": 1.0, "disk": 0.5, "gpu": 1.0, "image": 1.0, "spread": 0.5}
_UTILISED = frozenset({"cpu", "memory", "disk", "gpu"})
_GREATEST_WEIGHT = 1000.0
RESOURCES = tuple(_CURVES)

_Points = tuple[tuple[float, ...], ...]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times in seconds. A region of more than `ask_all_up_to` nodes is asked in parts: the `ask_best` by what is known
    of them, and `ask_random` others. `per_caller_s` orders a second, with `per_caller_burst` at once; 0 is no limit."""

    bid_deadline_s: float = 1.0  # 0.01 to 30; a node that has not bid by then is passed over
    cancel_deadline_s: float = 5.0  # 0.1 to 60; then an order whose fate is not known is answered as uncertain
    ask_all_up_to: int = 16
    ask_best: int = 12
    ask_random: int = 4
    ask_rounds: int = 4  # 1 to 100 parts of a large region are asked, until the order is filled
    at_once: int = 8  # 1 to 64 machines of a counted order are placed at a time
    per_caller_s: float = 100.0
    per_caller_burst: int = 500

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least:g} and {most:g}, not {value:g}")


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "bid_deadline_s": (0.01, 30),
    "cancel_deadline_s": (0.1, 60),
    "ask_all_up_to": (1, 1000),
    "ask_best": (1, 1000),
    "ask_random": (0, 1000),
    "ask_rounds": (1, 100),
    "at_once": (1, 64),
    "per_caller_s": (0, 1e6),
    "per_caller_burst": (1, 1e6),
}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    curves: dict[str, _Points] = {}
    weights: dict[str, float] = {}
    limits: Limits = Limits()


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """A curve and a weight for each of `RESOURCES`."""

    curves: Mapping[str, Curve]
    weights: Mapping[str, float]
    limits: Limits = Limits()


def preferences(
    curves: Mapping[str, _Points] = MappingProxyType({}),
    weights: Mapping[str, float] = MappingProxyType({}),
    limits: Limits | None = None,
) -> Preferences:
    """The usual ones with these instead. Raises `ValueError` naming the key."""
    _check_known("curves", curves)
    _check_known("weights", weights)
    for name, weight in weights.items():
        if not 0 <= weight <= _GREATEST_WEIGHT:
            raise ValueError(f"weights.{name} must be between 0 and {_GREATEST_WEIGHT:g}, not {weight:g}")
    whole = {**_WEIGHTS, **weights}
    if not any(whole[name] for name in ("cpu", "memory", "disk")):
        raise ValueError("weights: one of cpu, memory and disk must be above 0")
    made = {name: _curve(name, curves.get(name, points)) for name, points in _CURVES.items()}
    return Preferences(curves=made, weights=whole, limits=limits or Limits())


def load_preferences(file: Path | None) -> Preferences:
    """The preferences of a file; the usual ones without a file. Raises `CannotStart` naming the file and the key."""
    if file is None:
        return preferences()
    try:
        read = msgspec.convert(tomllib.loads(file.read_text()), _File)
        return preferences(read.curves, read.weights, read.limits)
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise CannotStart(f"cannot read the market's file {file}: {error}") from error
    except (msgspec.ValidationError, ValueError) as error:
        raise CannotStart(f"the market's file {file} is refused: {error}") from error


def _curve(name: str, points: _Points) -> Curve:
    try:
        return curve(points, most=1.0 if name in _UTILISED else None)
    except ValueError as error:
        raise ValueError(f"curves.{name}{error}") from error


def _check_known(table: str, given: Mapping[str, object]) -> None:
    for name in given:
        if name not in _CURVES:
            raise ValueError(f"{table}.{name} is not known: there are {', '.join(RESOURCES)}")
