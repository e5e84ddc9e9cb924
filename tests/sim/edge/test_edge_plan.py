"""Plans: the same from the same seed, in order, with every kind of blow."""

from hawker.sim.edge.edge_plan import RUN_S, EdgeVerb, draw


def test_a_plan_is_its_seed_s_and_in_order() -> None:
    plan = draw(7)
    assert plan == draw(7) != draw(8)
    times = [operation.at for operation in plan.operations]
    assert times == sorted(times) and [operation.number for operation in plan.operations] == list(
        range(1, len(times) + 1)
    )
    assert times[-1] < 2 * RUN_S


def test_plans_have_every_kind_of_blow() -> None:
    assert {operation.verb for seed in range(1, 30) for operation in draw(seed).operations} == set(EdgeVerb)
