"""What came of each blow that clients of an edge were dealt, as rows of a table. Pure."""

from collections.abc import Sequence

import msgspec

_WIDTHS = (26, 5, 14, 14, 8, 8)
HEAD = ("BLOW", "HOST", "GETS LOST", "POSTS LOST", "SLOWEST", "REST", "FINDINGS")


class EdgeRow(msgspec.Struct, frozen=True, kw_only=True):
    """`gets` and `posts` were sent to edges that the blow spares, `gets_lost` and `posts_lost` of them had no answer or
    a bad one. `slowest_s` is the longest time that one of these took; `rest_s` is from the end of the blow until every
    node and machine was there again, None where it did not come to that."""

    blow: str
    """What was done."""
    host: int
    """Which one it was done to, by its number."""
    gets: int
    gets_lost: int
    posts: int
    posts_lost: int
    slowest_s: float
    rest_s: float | None
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""


class EdgeTrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """`findings` belong to no blow. `twice` is how many requests reached machines a second time, as they may."""

    nodes: int
    """How many there were."""
    seconds: float
    """How long the trial took."""
    rows: tuple[EdgeRow, ...]
    twice: int
    findings: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(len(row.findings) for row in self.rows) + len(self.findings)


def edge_line(row: EdgeRow) -> str:
    gets, posts = f"{row.gets_lost} of {row.gets}", f"{row.posts_lost} of {row.posts}"
    rest = "-" if row.rest_s is None else f"{row.rest_s:.1f} s"
    found = "; ".join(row.findings) or "none"
    return line((row.blow, str(row.host), gets, posts, f"{row.slowest_s:.2f} s", rest, found))


def line(cells: Sequence[str]) -> str:
    *fixed, rest = cells
    return "  ".join([*(f"{cell:{width}}" for cell, width in zip(fixed, _WIDTHS, strict=True)), rest])


def summary(report: EdgeTrialReport) -> str:
    gets, lost = sum(row.gets for row in report.rows), sum(row.gets_lost for row in report.rows)
    posts, cut = sum(row.posts for row in report.rows), sum(row.posts_lost for row in report.rows)
    text = (
        f"{len(report.rows)} blows over {report.nodes} nodes, {report.found} findings; {lost} of {gets} GETs and {cut}"
        f" of {posts} POSTs lost; {report.twice} GETs reached a second machine; {report.seconds:.0f} s"
    )
    return "\n".join([*report.findings, text])
