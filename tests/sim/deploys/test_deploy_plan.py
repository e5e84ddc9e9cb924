from hawker.sim.deploys.deploy_plan import EVERY_HOST, HOSTS, PLACES, DeployBlow, DeployVerb, draw
from hawker.up.wiring import NODE_FLOWS

PLANS = [draw(seed) for seed in range(1, 40)]


def test_a_plan_is_the_same_each_time_and_another_one_by_another_seed() -> None:
    assert draw(1) == draw(1) and draw(1).operations != draw(2).operations


def test_every_verb_host_place_and_blow_is_drawn() -> None:
    operations = [operation for plan in PLANS for operation in plan.operations]
    assert {operation.verb for operation in operations} == set(DeployVerb)
    assert {operation.label for operation in operations} == {EVERY_HOST, *(str(each + 1) for each in range(HOSTS))}
    ambushes = [operation.word.split("|") for operation in operations if operation.verb is DeployVerb.AMBUSH]
    assert {blow for _, _, blow in ambushes} == set(DeployBlow)
    assert {place for place, _, _ in ambushes} >= set(PLACES)


def test_each_place_is_one_of_a_step_of_a_deploy() -> None:
    there = {
        f"{flow.name}.{step.name} {edge}"
        for flow in NODE_FLOWS
        for step in flow.steps
        for edge in ("before", "after", *step.points)
    }
    assert set(PLACES) <= there


def test_a_host_that_falls_by_plan_gets_up_again() -> None:
    for plan in PLANS:
        for operation in plan.operations:
            if operation.verb in (DeployVerb.KILL, DeployVerb.POWER):
                assert any(
                    later.verb is DeployVerb.BOOT and later.label in (operation.label, EVERY_HOST)
                    for later in plan.operations
                    if later.at > operation.at
                )
