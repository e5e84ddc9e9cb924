"""The pictures of docs/schedulers.md: what becomes of each policy as the fleet grows, as line plots in SVG text.

The same numbers give the same bytes, so that a picture in a repository changes only when what it shows does.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.schedulers.report import Report

Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 140, 44, 56
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_FONT = "font-family='sans-serif' font-size='12' fill='#333333'"
_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`logarithmic` axes show no value below `least`."""

    label: str
    logarithmic: bool = False
    least: float = 0.0

    def span(self, values: Sequence[float]) -> tuple[float, float]:
        """From a round number to a round number, with all of them between."""
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        if self.logarithmic:
            ends = math.floor(math.log10(max(low, self.least))), math.ceil(math.log10(max(high, self.least)))
            return 10.0 ** ends[0], 10.0 ** max(ends[1], ends[0] + 1)
        step = _round_step(max(high, 1e-9) / _STEPS)
        return 0.0, step * max(1, math.ceil(high / step - 1e-9))

    def ticks(self, span: tuple[float, float]) -> list[float]:
        low, high = span
        if self.logarithmic:
            first, last = round(math.log10(low)), round(math.log10(high))
            return [10.0**power for power in range(first, last + 1)]
        step = _round_step(high / _STEPS)
        return [step * index for index in range(round(high / step) + 1)]

    def share(self, value: float, span: tuple[float, float]) -> float:
        """Where on the axis, from 0 to 1."""
        low, high = span
        if self.logarithmic:
            return (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return (value - low) / (high - low)


def plot(title: str, across: Axis, up: Axis, lines: Mapping[str, Sequence[Point]]) -> str:
    """One line with its name for each of `lines`."""
    points = [point for line in lines.values() for point in line]
    spans = across.span([x for x, _ in points]), up.span([y for _, y in points])
    size = f"width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size}>",
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='#ffffff'/>",
        f"<text x='{_LEFT}' y='24' {_FONT} font-weight='bold'>{escape(title)}</text>",
        *_frame(across, up, spans),
    ]
    for index, (name, line) in enumerate(lines.items()):
        parts.extend(_line(name, index, [_place(point, across, up, spans) for point in line]))
    return "\n".join([*parts, "</svg>", ""])


_Spans = tuple[tuple[float, float], tuple[float, float]]


def _frame(across: Axis, up: Axis, spans: _Spans) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value in across.ticks(spans[0]):
        x = _LEFT + across.share(value, spans[0]) * (right - _LEFT)
        yield f"<line x1='{x:.1f}' y1='{_TOP}' x2='{x:.1f}' y2='{bottom}' stroke='#e5e5e5'/>"
        yield f"<text x='{x:.1f}' y='{bottom + 18}' text-anchor='middle' {_FONT}>{_number(value)}</text>"
    for value in up.ticks(spans[1]):
        y = bottom - up.share(value, spans[1]) * (bottom - _TOP)
        yield f"<line x1='{_LEFT}' y1='{y:.1f}' x2='{right}' y2='{y:.1f}' stroke='#e5e5e5'/>"
        yield f"<text x='{_LEFT - 8}' y='{y + 4:.1f}' text-anchor='end' {_FONT}>{_number(value)}</text>"
    middle, centre = (_LEFT + right) / 2, (_TOP + bottom) / 2
    yield f"<text x='{middle:.1f}' y='{_HEIGHT - 14}' text-anchor='middle' {_FONT}>{escape(across.label)}</text>"
    turned = f"transform='rotate(-90 18 {centre:.1f})'"
    yield f"<text x='18' y='{centre:.1f}' text-anchor='middle' {turned} {_FONT}>{escape(up.label)}</text>"


def _line(name: str, index: int, places: Sequence[Point]) -> Iterator[str]:
    colour = _COLOURS[index % len(_COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>"
    for x, y in places:
        yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>"
    y = _TOP + 18 * index + 12
    x = _WIDTH - _RIGHT + 14
    yield f"<line x1='{x}' y1='{y - 4}' x2='{x + 18}' y2='{y - 4}' stroke='{colour}' stroke-width='3'/>"
    yield f"<text x='{x + 24}' y='{y}' {_FONT}>{escape(name)}</text>"


def _place(point: Point, across: Axis, up: Axis, spans: _Spans) -> Point:
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    x = _LEFT + across.share(point[0], spans[0]) * wide
    return x, _HEIGHT - _BOTTOM - up.share(point[1], spans[1]) * high


def _round_step(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return float(next(times * power for times in (1, 2, 5, 10) if times * power >= step - 1e-12))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


_HOSTS = Axis(label="hosts", logarithmic=True, least=1)
_Value = Callable[[Report], float | None]

_PLOTS: Mapping[str, tuple[str, Axis, _Value]] = {
    "work": (
        "Work for each order",
        Axis(label="hosts looked at, or asked", logarithmic=True, least=1),
        lambda report: report.looked + report.asked + report.background,
    ),
    "placement": (
        "Time to placement, p99",
        Axis(label="milliseconds", logarithmic=True, least=0.1),
        lambda report: report.place_p99_ms,
    ),
    "refused": (
        "Orders refused",
        Axis(label="percent of all orders"),
        lambda report: 100 * sum(report.refused.values()) / max(1, report.orders),
    ),
    "balance": (
        "How unevenly hosts are used",
        Axis(label="coefficient of variation"),
        lambda report: report.variation,
    ),
    "pulled": (
        "Bytes pulled for each machine",
        Axis(label="MiB"),
        lambda report: 1024 * report.pulled_gib / max(1, report.placed),
    ),
}


def plots(reports: Iterable[Report]) -> dict[str, str]:
    """File names and what is in them. One line a policy, in the order in which they come."""
    by_policy: dict[str, list[Report]] = {}
    for report in reports:
        by_policy.setdefault(report.policy, []).append(report)
    return {f"{name}.svg": _plot(title, up, value, by_policy) for name, (title, up, value) in _PLOTS.items()}


def _plot(title: str, up: Axis, value: _Value, by_policy: Mapping[str, list[Report]]) -> str:
    lines = {
        policy: [(float(each.hosts), found) for each in reports if (found := value(each)) is not None]
        for policy, reports in by_policy.items()
    }
    return plot(title, _HOSTS, up, lines)
