from dataclasses import replace

from hawker.proof.violation import Invariant, Violation
from hawker.sim.worker.plan import WorkerVerb
from hawker.sim.worker.report import repeat, report_of, summary
from hawker.sim.worker.simulation import run
from tests.sim.played import call, order, plan


def test_a_report_has_everything_that_the_line_has_and_the_findings_in_words() -> None:
    outcome = replace(run(plan(order())), found=(Violation(Invariant.KEPT, "m", "is forgotten"),))
    report = report_of(outcome, "hawker sim --seed 1")
    assert (report.seed, report.operations, report.digest) == (1, 1, outcome.digest)
    assert report.found[0].invariant == "acknowledged means kept" and report.again == "hawker sim --seed 1"


def test_a_summary_is_one_line_with_the_digest() -> None:
    outcome = run(plan(order()))
    assert summary(outcome) == (
        f"seed 1: 1 operations, 0 crashes, 0 faults, 4m11s, digest {outcome.digest}, nothing found"
    )


def test_the_command_repeats_the_cut_run() -> None:
    outcome = run(plan(order(), call(WorkerVerb.STOP, 5)))
    assert repeat(outcome, 5, None, whole=True) == "hawker sim --seed 1"
    assert repeat(outcome, 2, "no-fsync", whole=False) == "hawker sim --seed 1 --minutes 2 --plant no-fsync --only 1,2"
