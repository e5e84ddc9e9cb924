import pytest

from hawker.sim.deploys.deploy_bugs import PLANTS
from hawker.sim.deploys.deploy_run import HOSTS, DeployVerb, draw, play, shrink

pytestmark = pytest.mark.slow


def test_the_same_seed_is_the_same_run_and_finds_nothing() -> None:
    first, second = play(draw(2)), play(draw(2))
    assert first.digest == second.digest and first.lines == second.lines
    assert first.found == () and first.kills > 0 and first.complete + first.back > 0


def test_a_plan_has_every_kind_of_blow_and_each_host_that_falls_gets_up() -> None:
    verbs = {operation.verb for seed in range(1, 20) for operation in draw(seed).operations}
    assert verbs == set(DeployVerb)
    hosts = {operation.label for seed in range(1, 5) for operation in draw(seed).operations}
    assert hosts == {str(each + 1) for each in range(HOSTS)}


def test_a_finding_is_told_by_fewer_operations() -> None:
    kit = next(plant.kit for plant in PLANTS if plant.name == "rendered-anew")
    found = play(draw(2), kit)
    shortest = shrink(found, kit, 6)
    assert shortest.found and len(shortest.plan.operations) < len(found.plan.operations)
