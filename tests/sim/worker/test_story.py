from dataclasses import replace

from hawker.proof.violation import Invariant, Violation
from hawker.sim.worker.operation import WorkerVerb
from hawker.sim.worker.simulation import run
from hawker.sim.worker.story import repeat, story, summary
from tests.sim.played import call, order, plan


def test_a_summary_is_one_line_with_the_digest() -> None:
    outcome = run(plan(order()))
    assert summary(outcome) == (
        f"seed 1: 1 operations, 0 crashes, 0 faults, 4m11s, digest {outcome.digest}, nothing found"
    )


def test_a_story_tells_who_did_what_and_what_was_found_and_how_to_see_it_again() -> None:
    outcome = run(plan(order(), call(WorkerVerb.STOP, 5)))
    found = replace(outcome, found=(Violation(Invariant.KEPT, "m", "is forgotten"),))
    told = list(story(found, 300, "hawker sim --seed 1"))
    assert told[0] == "The shortest story of seed 1, 2 of its 300 deeds:"
    assert any("ann: create ann-1 no 256" in line for line in told)
    assert told[-2:] == ["  FOUND: acknowledged means kept: m: is forgotten", "Again: hawker sim --seed 1"]


def test_the_command_repeats_the_cut_run() -> None:
    outcome = run(plan(order(), call(WorkerVerb.STOP, 5)))
    assert repeat(outcome, 5, None, whole=True) == "hawker sim --seed 1"
    assert repeat(outcome, 2, "no-fsync", whole=False) == "hawker sim --seed 1 --minutes 2 --plant no-fsync --only 1,2"
