"""A run as a value that programs read."""

import msgspec

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
