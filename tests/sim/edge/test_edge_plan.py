"""Plans: the same from the same seed, in order, with every kind of blow."""

from hawker.sim.edge.edge_plan import ALL, OTHER_NUMBER, RUN_S, EdgeVerb, draw


def test_a_plan_is_its_seed_s_and_in_order() -> None:
    plan = draw(7)
    assert plan == draw(7) != draw(8)
    times = [operation.at for operation in plan.operations]
    assert times == sorted(times) and [operation.number for operation in plan.operations] == list(
        range(1, len(times) + 1)
    )
    assert times[-1] < 2 * RUN_S


def test_every_other_plan_has_two_hosts_with_two_edge_processes_and_their_number_changes() -> None:
    plans = [draw(seed) for seed in range(1, 13)]
    assert {plan.processes for plan in plans if plan.seed % 2} == {(1, 1, 1)}
    assert {plan.processes for plan in plans if not plan.seed % 2} == {(1, 2, 2), (2, 1, 2), (2, 2, 1)}
    ends = {each.word for plan in plans for each in plan.operations if each.verb is EdgeVerb.EDGE}
    assert ends == {ALL, "0", "1", OTHER_NUMBER}


def test_plans_have_every_kind_of_blow() -> None:
    assert {operation.verb for seed in range(1, 30) for operation in draw(seed).operations} == set(EdgeVerb)
