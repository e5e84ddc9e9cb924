"""A fleet's trial on one page: what was ordered, how long what took, and what was found. Pure."""

from collections import Counter
from collections.abc import Sequence

import msgspec

_SHOWN = 5


class TimedMoment(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took until `what` was so."""

    what: str
    seconds: float
    """From what caused it."""


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """To one order: what became of it, how long that took, and the error's text."""

    outcome: str
    """A word: filled, refused, unavailable or unknown."""
    seconds: float
    """From the order to the answer."""
    why: str = ""
    """Empty for one that was filled."""


class TrialPhase(msgspec.Struct, frozen=True, kw_only=True):
    """Orders given while something was done to the network. `refused` are typed refusals of the market, `unknown` those
    whose fate the client could not learn; `slowest_s` is the longest that a client waited for any answer; `why` has
    what was said of those that were not filled, each text once."""

    name: str
    """What was done meanwhile."""
    filled: int
    """Orders that were answered with a machine."""
    refused: int
    unavailable: int
    """Orders that were answered with `try later`."""
    unknown: int
    p50_ms: float
    """Half of the answers took no longer."""
    slowest_s: float
    why: tuple[str, ...] = ()


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int
    """How many there were."""
    phases: tuple[TrialPhase, ...]
    moments: tuple[TimedMoment, ...]
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""

    @property
    def status(self) -> int:
        return 1 if self.findings else 0


def phase_of(name: str, answers: Sequence[OrderAnswer]) -> TrialPhase:
    counts = Counter(answer.outcome for answer in answers)
    filled = sorted(answer.seconds for answer in answers if answer.outcome == "filled")
    return TrialPhase(
        name=name,
        filled=counts["filled"],
        refused=counts["refused"],
        unavailable=counts["unavailable"],
        unknown=counts["unknown"],
        p50_ms=round(filled[len(filled) // 2] * 1000, 1) if filled else 0.0,
        slowest_s=round(max((answer.seconds for answer in answers), default=0.0), 2),
        why=tuple({f"{answer.outcome}: {answer.why}": None for answer in answers if answer.why})[:_SHOWN],
    )


def page(report: TrialReport) -> str:
    lines = [f"{report.nodes} nodes", "", "ORDERS".ljust(34) + "FILLED  REFUSED  AWAY  UNKNOWN  P50 MS  SLOWEST S"]
    for each in report.phases:
        counts = f"{each.filled:6}  {each.refused:7}  {each.unavailable:4}  {each.unknown:7}"
        lines.append(f"{each.name:34}{counts}  {each.p50_ms:6.0f}  {each.slowest_s:9.2f}")
    for each in report.phases:
        lines += [f"{each.name}: {text}" for text in each.why]
    lines += ["", *(f"{moment.seconds:8.2f} s  {moment.what}" for moment in report.moments), ""]
    lines += [*(f"found: {finding}" for finding in report.findings), f"{len(report.findings)} findings"]
    return "\n".join(lines)
