"""Samples and the table they end in. Times are milliseconds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Samples:
    """What was measured of one thing, in the same run and interleaved with the others."""

    name: str
    ms: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def p99(self) -> float:
        return sorted(self.ms)[min(len(self.ms) - 1, int(len(self.ms) * 0.99))]


def table(rows: Sequence[Samples], against: Samples) -> str:
    """Markdown. `against` is the row that the ratios are to."""
    lines = ["| What | p50 ms | p99 ms | p50 against " + against.name + " | samples |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        ratio = f"{row.median / against.median:.2f}x"
        lines.append(f"| {row.name} | {row.median:.1f} | {row.p99:.1f} | {ratio} | {len(row.ms)} |")
    return "\n".join(lines)
