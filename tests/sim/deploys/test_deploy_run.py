import pytest

from hawker.sim.deploys.deploy_bugs import PLANTS
from hawker.sim.deploys.deploy_plan import draw
from hawker.sim.deploys.deploy_run import play, shrink

pytestmark = pytest.mark.slow


@pytest.mark.long(reason="`make check` plays sound seeds; the same seed is the same run in the other simulators' tests")
def test_the_same_seed_is_the_same_run_and_finds_nothing() -> None:
    first, second = play(draw(2)), play(draw(2))
    assert first.digest == second.digest and first.lines == second.lines
    assert first.found == () and first.kills > 0 and first.complete + first.back > 0


def test_a_finding_is_told_by_fewer_operations() -> None:
    kit = next(plant.kit for plant in PLANTS if plant.name == "rendered-anew")
    found = play(draw(1), kit)
    shortest = shrink(found, kit, 6)
    assert shortest.found and len(shortest.plan.operations) < len(found.plan.operations)
