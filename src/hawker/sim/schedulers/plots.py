"""The pictures of docs/schedulers.md: what becomes of each policy as the fleet grows."""

from collections.abc import Callable, Iterable, Mapping

from hawker.sim.schedulers.report import Report
from hawker.sim.schedulers.svg import Axis, plot

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
