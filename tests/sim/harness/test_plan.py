from collections import Counter
from collections.abc import Set
from enum import StrEnum
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from hawker.clock import ManualClock
from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import Chance, RunOperation, RunPlan, Shrinker, do_in_turn, numbered, only_option, story
from hawker.sim.harness.planted_bug import kit_of
from hawker.sim.node.kit import SOUND
from hawker.sim.worker.plan import WorkerPlan, WorkerVerb, draw
from hawker.sim.worker.planted import PLANTS
from hawker.sim.worker.simulation import WorkerOutcome, play, shrink
from tests.sim.played import call, order, plan
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time


class ToyVerb(StrEnum):
    PUSH = "push"


Toy: TypeAlias = RunOperation[ToyVerb]


def toy(number: int, at: float, actor: str = "ann") -> Toy:
    return RunOperation(number, at, actor, ToyVerb.PUSH)


def test_operations_are_numbered_by_time() -> None:
    assert [(each.number, each.at) for each in numbered([toy(0, 2.0), toy(0, 1.0)])] == [(1, 1.0), (2, 2.0)]


def test_plan_cut_to_numbers_keeps_its_seed() -> None:
    plan: RunPlan[Toy] = RunPlan(7, (toy(1, 1.0), toy(2, 2.0, "bob"), toy(3, 3.0)))
    cut = plan.only({1, 2})
    assert cut.seed == 7 and cut.of("ann") == (toy(1, 1.0),) and cut.of("bob") == (toy(2, 2.0, "bob"),)


@pytest.mark.anyio
async def test_operations_of_actor_are_done_at_their_times() -> None:
    clock, done = LoopClock(1), list[float]()

    async def do(operation: Toy) -> None:
        done.append(round(clock.monotonic() - began, 3))
        await clock.sleep(1.5)

    began = clock.monotonic()
    await do_in_turn([toy(1, 1.0), toy(2, 2.0), toy(3, 9.0)], clock, do, began)
    assert done == [1.0, 2.5, 9.0]


def test_choices_repeat_with_the_seed() -> None:
    first, second = Chance(ManualClock(seed=3)), Chance(ManualClock(seed=3))
    assert [first.between(0, 99) for _ in range(20)] == [second.between(0, 99) for _ in range(20)]


def test_both_ends_come_and_nothing_beyond() -> None:
    chance = Chance(ManualClock(seed=1))
    assert {chance.between(2, 4) for _ in range(200)} == {2, 3, 4}
    assert {chance.one_of("ab") for _ in range(50)} == {"a", "b"}


def test_weights_are_kept() -> None:
    chance = Chance(ManualClock(seed=1))
    drawn = Counter(chance.weighed({"often": 9.0, "rarely": 1.0, "never": 0.0}) for _ in range(1000))
    assert drawn["never"] == 0 and 50 < drawn["rarely"] < 200


def test_a_share_of_nothing_never_happens() -> None:
    chance = Chance(ManualClock())
    assert not any(chance.happens(0.0) for _ in range(100)) and all(chance.happens(1.0) for _ in range(100))


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
    shortest = shrink(play(draw(1), kit), kit)
    assert len(shortest.plan.operations) == 1
    assert [violation.invariant for violation in play(shortest.plan, kit).found] == [Invariant.CAPACITY]


def test_a_story_tells_who_did_what_and_what_was_found_and_how_to_see_it_again() -> None:
    outcome = play(plan(order(), call(WorkerVerb.STOP, 5)))
    found = replace(outcome, found=(Violation(Invariant.KEPT, "m", "is forgotten"),))
    told = list(story(found, 300, "hawker sim --seed 1"))
    assert told[0] == "The shortest story of seed 1, 2 of its 300 planned operations:"
    assert any("ann: create ann-1 no 256" in line for line in told)
    assert told[-2:] == ["  FOUND: acknowledged means kept: m: is forgotten", "Again: hawker sim --seed 1"]


def test_option_names_the_operations_of_a_cut_plan() -> None:
    outcome = play(plan(order(number=3), call(WorkerVerb.STOP, 5, number=7)))
    assert only_option(outcome) == "--only 3,7"
