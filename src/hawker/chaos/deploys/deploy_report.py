"""What came of each deploy that was dealt a blow, as rows of a table. Pure."""

from collections.abc import Sequence

import msgspec

_WIDTHS = (10, 44, 12, 8, 8, 14)
HEAD = ("STRATEGY", "BLOW", "END", "NEXT", "REST", "REQUESTS LOST", "FINDINGS")


class DeployRow(msgspec.Struct, frozen=True, kw_only=True):
    """`blow` is what happened to the deploy, `end` its release's status. `next_s` is from the blow until a further
    machine began to change or had proven itself, `rest_s` from the end of the blow until every machine was of the
    release that counts; both in seconds, None where it did not come to that. `error` is why it was taken back, as the
    deploy says. `requests` were sent to edges that the
    blow spares, `lost` of them had no answer or a bad one."""

    strategy: str
    """Of the deploy: `rolling`, `canary` and so on."""
    blow: str
    end: str
    error: str = ""
    next_s: float | None
    rest_s: float | None
    requests: int
    lost: int
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""


class DeploysReport(msgspec.Struct, frozen=True, kw_only=True):
    """`findings` belong to no blow."""

    nodes: int
    """How many there were."""
    seconds: float
    """How long the trial took."""
    rows: tuple[DeployRow, ...]
    findings: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(len(row.findings) for row in self.rows) + len(self.findings)


def deploy_line(row: DeployRow) -> str:
    lost = f"{row.lost} of {row.requests}"
    found = "; ".join(row.findings) or (f"none ({row.error[:60]})" if row.error else "none")
    return line((row.strategy, row.blow, row.end, _seconds(row.next_s), _seconds(row.rest_s), lost, found))


def line(cells: Sequence[str]) -> str:
    *fixed, rest = cells
    return "  ".join([*(f"{cell:{width}}" for cell, width in zip(fixed, _WIDTHS, strict=True)), rest])


def summary(report: DeploysReport) -> str:
    ends = [row.end for row in report.rows]
    lost, requests = (sum(numbers) for numbers in ([r.lost for r in report.rows], [r.requests for r in report.rows]))
    text = (
        f"{len(ends)} deploys over {report.nodes} nodes, {report.found} findings; {ends.count('complete')} complete,"
        f" {ends.count('rolled_back')} taken back; {lost} of {requests} requests lost; {report.seconds:.0f} s"
    )
    return "\n".join([*report.findings, text])


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
