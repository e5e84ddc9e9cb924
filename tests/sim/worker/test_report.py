from dataclasses import replace

from hawker.proof.violation import Invariant, Violation
from hawker.sim.worker.report import report_of
from hawker.sim.worker.simulation import run
from tests.sim.played import order, plan


def test_a_report_has_everything_that_the_line_has_and_the_findings_in_words() -> None:
    outcome = replace(run(plan(order())), found=(Violation(Invariant.KEPT, "m", "is forgotten"),))
    report = report_of(outcome, "hawker sim --seed 1")
    assert (report.seed, report.operations, report.digest) == (1, 1, outcome.digest)
    assert report.found[0].invariant == "acknowledged means kept" and report.again == "hawker sim --seed 1"
