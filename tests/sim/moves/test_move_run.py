import pytest

from hawker.sim.moves.move_bugs import PLANTS
from hawker.sim.moves.move_plan import draw
from hawker.sim.moves.move_run import play, shrink


def test_the_same_seed_is_the_same_run_and_finds_nothing() -> None:
    first, second = play(draw(4)), play(draw(4))
    assert first.digest == second.digest and first.lines == second.lines
    assert first.found == () and first.kills > 0 and first.moves + first.aborted > 0


@pytest.mark.long(reason="`make check` plays five seeds of moves")
def test_some_seeds_keep_every_promise() -> None:
    outcomes = [play(draw(seed)) for seed in range(1, 4)]
    assert [outcome.found for outcome in outcomes] == [()] * 3
    assert sum(outcome.moves for outcome in outcomes) > 0


def test_a_finding_is_told_by_fewer_operations() -> None:
    kit = next(plant.kit for plant in PLANTS if plant.name == "same-generation")
    found = play(draw(1), kit)
    shortest = shrink(found, kit, 12)
    assert shortest.found and len(shortest.plan.operations) < len(found.plan.operations)
