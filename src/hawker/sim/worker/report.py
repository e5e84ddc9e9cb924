"""What is said of a run of the simulated worker: one line, one value for programs, and the command that repeats it."""

import msgspec

from hawker.sim.harness.report import only_option
from hawker.sim.worker.plan import MINUTES
from hawker.sim.worker.simulation import WorkerOutcome


class ReportedFinding(msgspec.Struct, frozen=True, kw_only=True):
    invariant: str
    about: str
    what: str


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """`virtual_s` is how long the run took in its own time; `again` the command that repeats it."""

    seed: int
    operations: int
    lives: int
    crashes: int
    faults: int
    virtual_s: float
    digest: str
    found: tuple[ReportedFinding, ...]
    again: str


def report_of(outcome: WorkerOutcome, again: str) -> WorkerReport:
    return WorkerReport(
        seed=outcome.plan.seed,
        operations=outcome.operations,
        lives=outcome.lives,
        crashes=outcome.crashes,
        faults=outcome.faults,
        virtual_s=round(outcome.ended_at, 6),
        digest=outcome.digest,
        found=tuple(
            ReportedFinding(invariant=each.invariant.value, about=each.about, what=each.what) for each in outcome.found
        ),
        again=again,
    )


def summary(outcome: WorkerOutcome) -> str:
    """One line. Times are virtual."""
    minutes, seconds = divmod(int(outcome.ended_at), 60)
    verdict = f"{len(outcome.found)} findings: {outcome.found[0].invariant.value}" if outcome.found else "nothing found"
    return (
        f"seed {outcome.plan.seed}: {outcome.operations} operations, {outcome.crashes} crashes, "
        f"{outcome.faults} faults, {minutes}m{seconds:02d}s, digest {outcome.digest}, {verdict}"
    )


def repeat(outcome: WorkerOutcome, minutes: float, plant: str | None, *, whole: bool) -> str:
    """The command that plays this run once more."""
    words = ["hawker sim", f"--seed {outcome.plan.seed}"]
    words += [f"--minutes {minutes:g}"] if minutes != MINUTES else []
    words += [f"--plant {plant}"] if plant else []
    words += [] if whole else [only_option(outcome)]
    return " ".join(words)
