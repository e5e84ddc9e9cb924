from hawker.sim.fleet.operation import BUYER, CLIENTS, DOUBTER, NATURE, OPERATOR, FleetVerb
from hawker.sim.fleet.plan import draw


def test_a_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert draw(7) == draw(7) != draw(8)


def test_deeds_are_in_order_numbered_and_within_the_fleet() -> None:
    for seed in range(30):
        plan = draw(seed)
        assert [deed.number for deed in plan.deeds] == list(range(1, len(plan.deeds) + 1))
        assert sorted(plan.deeds, key=lambda deed: deed.at) == list(plan.deeds)
        assert all(node < plan.nodes for deed in plan.deeds for node in deed.nodes)
        assert {*CLIENTS, NATURE} <= {deed.actor for deed in plan.deeds} <= {*CLIENTS, NATURE, BUYER, DOUBTER, OPERATOR}


def test_every_kind_of_deed_comes_and_no_label_is_ordered_twice() -> None:
    deeds = [draw(seed).deeds for seed in range(40)]
    assert {deed.verb for plan in deeds for deed in plan} == set(FleetVerb)
    for plan in deeds:
        made = [
            deed.label
            for deed in plan
            if deed.verb in (FleetVerb.ORDER, FleetVerb.SPARE, FleetVerb.COUNT, FleetVerb.VOLUME)
        ]
        assert len(made) == len(set(made))


def test_the_number_of_nodes_can_be_given() -> None:
    assert draw(1, nodes=50).nodes == 50


def test_a_light_fleet_is_asked_for_no_more_than_its_worker_plays() -> None:
    verbs = {deed.verb for seed in range(20) for deed in draw(seed, nodes=30, light=True).deeds}
    assert (
        verbs & {FleetVerb.SPARE, FleetVerb.VOLUME, FleetVerb.CORDON, FleetVerb.DRAIN, FleetVerb.FORGET} == set()
        and FleetVerb.COUNT in verbs
    )
