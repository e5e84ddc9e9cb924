from collections.abc import Set

from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.planted_bug import kit_of
from hawker.sim.harness.shrink import Shrinker
from hawker.sim.node.kit import SOUND
from hawker.sim.worker.plan import WorkerPlan, draw
from hawker.sim.worker.planted import PLANTS
from hawker.sim.worker.simulation import WorkerOutcome, run, shrink


def outcome(plan: WorkerPlan, *found: Violation) -> WorkerOutcome:
    return WorkerOutcome(
        plan=plan, operations=0, lives=0, crashes=0, faults=0, ended_at=1e9, digest="", lines=(), found=found
    )


def shrunk(needed: Set[int], tries: int = 400, otherwise: Invariant | None = None) -> tuple[list[int], int]:
    """Of a run that breaks if all of the needed operations are there; how many tries it took."""
    whole, asked = draw(1, 1.0), []
    kept = Violation(Invariant.KEPT, "m", "gone")

    def play(numbers: Set[int]) -> WorkerOutcome:
        asked.append(numbers)
        other = (Violation(otherwise, "m", "else"),) if otherwise is not None else ()
        return outcome(whole.only(numbers), *((kept,) if needed <= numbers else other))

    shortest = Shrinker(outcome(whole, kept), play, tries).shrink()
    return [operation.number for operation in shortest.plan.operations], len(asked)


def test_only_what_is_needed_is_left() -> None:
    assert shrunk({17})[0] == [17] and shrunk({3, 17, 40})[0] == [3, 17, 40]


def test_another_finding_is_not_the_same_story() -> None:
    assert shrunk({3, 17}, otherwise=Invariant.CAPACITY)[0] == [3, 17]


def test_tries_are_bounded() -> None:
    numbers, tries = shrunk({3, 17, 40}, tries=5)
    assert tries == 5 and {3, 17, 40} <= set(numbers)


def test_a_planted_bug_gives_a_short_story_that_shows_it_again() -> None:
    kit = kit_of(PLANTS, "room-twice", SOUND)
    shortest = shrink(run(draw(1), kit), kit)
    assert len(shortest.plan.operations) == 1
    assert [violation.invariant for violation in run(shortest.plan, kit).found] == [Invariant.CAPACITY]
