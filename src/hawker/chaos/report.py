"""A soak on one page: what was asked of the node, what was done to it, and what it broke. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from hawker.chaos.tally import CallVerdict, SoakTally, quantile

SHOWN = 20
_LOG_LINES = 12


class CallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one operation, by outcome; the latencies are of the calls that were answered well."""

    operation: str
    """Which one it is."""
    ok: int
    """How many did what they should."""
    refused: int
    """How many were refused with a reason."""
    unavailable: int
    """How many were told to try later."""
    lost: int
    """How many had no answer."""
    internal: int
    """How many ended with a fault of the node: none is good."""
    p50_ms: float
    """Half of them took no longer."""
    p99_ms: float
    """Of a hundred 99 took no longer."""


class FaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one fault: how often, and how long after its end the node answered again."""

    fault: str
    """Its name."""
    count: int
    """How often it was made."""
    recovered_p50_ms: float
    """Half of the times took no longer."""
    recovered_max_ms: float
    """The longest."""


class ReportedViolation(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    """Seconds since the soak began."""
    what: str
    """What must not be, for people."""
    log: str
    """The end of the daemon's log then."""


class SoakReport(msgspec.Struct, frozen=True, kw_only=True):
    """`repeat` is the command that runs it again. `silent_s`: for how long, in all, the node did not answer."""

    seed: int
    """By which calls and faults were drawn."""
    driver: str
    """The one that ran machines."""
    minutes: float
    """How long it was to take."""
    repeat: str
    calls: tuple[CallFigures, ...]
    faults: tuple[FaultFigures, ...]
    boots: int
    """How often a daemon was started, the first time as well."""
    boot_p50_ms: float
    """From the start of a daemon to its first answer: half of them took no longer."""
    boot_max_ms: float
    """The longest of these."""
    rests: int
    """How often all was let come to rest, and compared."""
    longest_rest_s: float
    """The longest time that this took."""
    silent_s: float
    longest_silence_s: float
    """The longest time in which the node did not answer."""
    violations: tuple[ReportedViolation, ...]

    @property
    def status(self) -> int:
        """What the command exits with."""
        return 1 if self.violations else 0


def report_of(tally: SoakTally, *, seed: int, driver: str, minutes: float, lasted_s: float) -> SoakReport:
    """`minutes` as asked for; `lasted_s` with all that belongs to it."""
    return SoakReport(
        seed=seed,
        driver=driver,
        minutes=round(lasted_s / 60, 1),
        repeat=f"hawker chaos soak --minutes {minutes:g} --seed {seed} --driver {driver}",
        calls=tuple(_calls(tally, operation) for operation in sorted(tally.calls)),
        faults=tuple(_damage(tally, name) for name in sorted(tally.faults)),
        boots=len(tally.boots_ms),
        boot_p50_ms=round(quantile(tally.boots_ms, 0.5)),
        boot_max_ms=round(max(tally.boots_ms, default=0.0)),
        rests=len(tally.rests_s),
        longest_rest_s=round(max(tally.rests_s, default=0.0), 1),
        silent_s=round(sum(tally.gaps_s), 1),
        longest_silence_s=round(max(tally.gaps_s, default=0.0), 1),
        violations=tuple(
            ReportedViolation(at_s=round(each.at_s, 1), what=each.what, log=each.log) for each in tally.findings
        ),
    )


def _calls(tally: SoakTally, operation: str) -> CallFigures:
    counts, taken = tally.calls[operation], tally.latencies_ms[operation]
    return CallFigures(
        operation=operation,
        **{outcome.value: counts[outcome] for outcome in CallVerdict},
        p50_ms=round(quantile(taken, 0.5), 1),
        p99_ms=round(quantile(taken, 0.99), 1),
    )


def _damage(tally: SoakTally, fault: str) -> FaultFigures:
    taken = tally.recoveries_ms[fault]
    return FaultFigures(
        fault=fault,
        count=tally.faults[fault],
        recovered_p50_ms=round(quantile(taken, 0.5)),
        recovered_max_ms=round(max(taken, default=0.0)),
    )


def page(report: SoakReport) -> str:
    """For a person."""
    return "\n".join(_lines(report))


def _lines(report: SoakReport) -> Iterator[str]:
    verdict = f"{len(report.violations)} VIOLATIONS" if report.violations else "nothing found"
    yield f"soak of {report.minutes:g} minutes, seed {report.seed}, driver {report.driver}: {verdict}"
    yield ""
    yield from _table(
        ("OPERATION", *(outcome.value.upper() for outcome in CallVerdict), "P50 MS", "P99 MS"),
        [(each.operation, *(getattr(each, outcome.value) for outcome in CallVerdict), each.p50_ms, each.p99_ms)
         for each in report.calls],
    )  # fmt: skip
    yield ""
    yield from _table(
        ("FAULT", "TIMES", "ANSWERED AFTER MS, P50", "MAX"),
        [(each.fault, each.count, each.recovered_p50_ms, each.recovered_max_ms) for each in report.faults],
    )
    yield ""
    yield f"boots {report.boots}, ready after {report.boot_p50_ms:g} ms (p50), {report.boot_max_ms:g} ms (max)"
    yield f"silent for {report.silent_s:g} s in all, {report.longest_silence_s:g} s at the longest"
    yield f"compared with its promises {report.rests} times, at rest after {report.longest_rest_s:g} s at the longest"
    yield from _violations(report)
    yield f"repeat with: {report.repeat}"


def _violations(report: SoakReport) -> Iterator[str]:
    for violation in report.violations[:SHOWN]:
        yield ""
        yield f"VIOLATION after {violation.at_s:g} s: {violation.what}"
        yield from (f"    {line}" for line in violation.log.splitlines()[-_LOG_LINES:])
    if len(report.violations) > SHOWN:
        yield f"and {len(report.violations) - SHOWN} more"
    if report.violations:
        yield ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Text to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    for row in cells:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join((first, *rest)).rstrip()
