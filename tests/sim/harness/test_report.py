from dataclasses import replace

from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.report import only_option, story
from hawker.sim.worker.plan import WorkerVerb
from hawker.sim.worker.simulation import run
from tests.sim.played import call, order, plan


def test_a_story_tells_who_did_what_and_what_was_found_and_how_to_see_it_again() -> None:
    outcome = run(plan(order(), call(WorkerVerb.STOP, 5)))
    found = replace(outcome, found=(Violation(Invariant.KEPT, "m", "is forgotten"),))
    told = list(story(found, 300, "hawker sim --seed 1"))
    assert told[0] == "The shortest story of seed 1, 2 of its 300 planned operations:"
    assert any("ann: create ann-1 no 256" in line for line in told)
    assert told[-2:] == ["  FOUND: acknowledged means kept: m: is forgotten", "Again: hawker sim --seed 1"]


def test_option_names_the_operations_of_a_cut_plan() -> None:
    outcome = run(plan(order(number=3), call(WorkerVerb.STOP, 5, number=7)))
    assert only_option(outcome) == "--only 3,7"
