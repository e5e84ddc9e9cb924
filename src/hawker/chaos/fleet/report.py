"""A fleet's trial on one page: what was ordered, how long what took, and what was found. Pure."""

from collections import Counter
from collections.abc import Sequence

import msgspec


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took until `what` was so."""

    what: str
    seconds: float


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Orders given while something was done to the network. `refused` are typed refusals of the market, `unknown` those
    whose fate the broker could not learn; `slowest_s` is the longest that a client waited for any answer."""

    name: str
    filled: int
    refused: int
    unavailable: int
    unknown: int
    p50_ms: float
    slowest_s: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int
    phases: tuple[Phase, ...]
    moments: tuple[Moment, ...]
    findings: tuple[str, ...]

    @property
    def status(self) -> int:
        return 1 if self.findings else 0


def phase_of(name: str, answers: Sequence[tuple[str, float]]) -> Phase:
    """From each order's outcome and how long it took, in seconds."""
    counts = Counter(outcome for outcome, _ in answers)
    filled = sorted(seconds for outcome, seconds in answers if outcome == "filled")
    return Phase(
        name=name,
        filled=counts["filled"],
        refused=counts["refused"],
        unavailable=counts["unavailable"],
        unknown=counts["unknown"],
        p50_ms=round(filled[len(filled) // 2] * 1000, 1) if filled else 0.0,
        slowest_s=round(max((seconds for _, seconds in answers), default=0.0), 2),
    )


def page(report: Report) -> str:
    lines = [f"{report.nodes} nodes", "", "ORDERS".ljust(34) + "FILLED  REFUSED  AWAY  UNKNOWN  P50 MS  SLOWEST S"]
    for each in report.phases:
        counts = f"{each.filled:6}  {each.refused:7}  {each.unavailable:4}  {each.unknown:7}"
        lines.append(f"{each.name:34}{counts}  {each.p50_ms:6.0f}  {each.slowest_s:9.2f}")
    lines += ["", *(f"{moment.seconds:8.2f} s  {moment.what}" for moment in report.moments), ""]
    lines += [*(f"found: {finding}" for finding in report.findings), f"{len(report.findings)} findings"]
    return "\n".join(lines)
