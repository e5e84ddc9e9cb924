"""What came of each blow that a move was dealt, as rows of a table. Pure."""

import msgspec

_WIDTHS = (16, 34, 9, 11, 8)


class BlowRow(msgspec.Struct, frozen=True, kw_only=True):
    """`move` is how it was ordered, `blow` what happened to it, `end` how it ended. `recovered_s` is from the repair to
    the end of the move with its machine started, None when it did not come to that. `away_s` is the longest time
    without an answer to the client that writes."""

    move: str
    blow: str
    end: str
    recovered_s: float | None
    away_s: float
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""
    reason: str = ""
    """Why the move ended so, in the move's own words; empty when it says nothing."""


class BlowsReport(msgspec.Struct, frozen=True, kw_only=True):
    """`acknowledged` are writes of the whole trial; `findings` belong to no blow."""

    workload: str
    """What the machines did."""
    seconds: float
    """How long the trial took."""
    acknowledged: int
    rows: tuple[BlowRow, ...]
    findings: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(len(row.findings) for row in self.rows) + len(self.findings)


HEAD = ("MOVE", "BLOW", "END", "RECOVERED", "AWAY", "FINDINGS")


def blow_line(row: BlowRow) -> str:
    recovered = "-" if row.recovered_s is None else f"{row.recovered_s:.1f} s"
    return line((row.move, row.blow, row.end, recovered, f"{row.away_s:.1f} s", "; ".join(row.findings) or "none"))


def line(cells: tuple[str, ...]) -> str:
    *fixed, rest = cells
    return "  ".join([*(f"{cell:{width}}" for cell, width in zip(fixed, _WIDTHS, strict=True)), rest])


def summary(report: BlowsReport) -> str:
    ends = [row.end for row in report.rows]
    text = (
        f"{len(report.rows)} blows, {report.found} findings; {ends.count('done')} moves done,"
        f" {ends.count('aborted')} aborted; {report.acknowledged} writes of the {report.workload} acknowledged;"
        f" {report.seconds:.0f} s"
    )
    return "\n".join([*report.findings, text])
