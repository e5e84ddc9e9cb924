from hawker.node import Capacity
from hawker.sim.fleet.plan import BUYER, CLIENTS, DOUBTER, OPERATOR, FleetOperation, FleetPlan, FleetVerb, draw
from hawker.sim.harness.plan import NATURE


def test_a_plan_can_be_cut_to_some_of_its_deeds_and_told_by_who_acts() -> None:
    operations = (
        FleetOperation(1, 0.1, "ann", FleetVerb.ORDER),
        FleetOperation(2, 0.2, NATURE, FleetVerb.KILL),
        FleetOperation(3, 0.3, "ann", FleetVerb.STOP),
    )
    plan = FleetPlan(1, operations, nodes=3, regions=1, room=Capacity(cpus=1, memory_mib=1, disk_mib=1))
    assert plan.of("ann") == (operations[0], operations[2])
    assert plan.only(frozenset({2})).operations == (operations[1],)


def test_a_plan_can_be_folded_to_fewer_nodes() -> None:
    room = Capacity(cpus=1, memory_mib=1, disk_mib=1)
    plan = FleetPlan(
        1, (FleetOperation(1, 0.1, "ann", FleetVerb.ORDER, nodes=(8, 2, 5, 0)),), nodes=9, regions=2, room=room
    )
    folded = plan.within(3)
    assert (folded.nodes, folded.regions, folded.operations[0].nodes) == (3, 1, (2, 0)) and plan.within(9) is plan


def test_a_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert draw(7) == draw(7) != draw(8)


def test_deeds_are_in_order_numbered_and_within_the_fleet() -> None:
    for seed in range(30):
        plan = draw(seed)
        assert [operation.number for operation in plan.operations] == list(range(1, len(plan.operations) + 1))
        assert sorted(plan.operations, key=lambda operation: operation.at) == list(plan.operations)
        assert all(node < plan.nodes for operation in plan.operations for node in operation.nodes)
        assert (
            {*CLIENTS, NATURE}
            <= {operation.actor for operation in plan.operations}
            <= {*CLIENTS, NATURE, BUYER, DOUBTER, OPERATOR}
        )


def test_every_kind_of_deed_comes_and_no_label_is_ordered_twice() -> None:
    operations = [draw(seed).operations for seed in range(40)]
    assert {operation.verb for plan in operations for operation in plan} == set(FleetVerb)
    for plan in operations:
        made = [
            operation.label
            for operation in plan
            if operation.verb in (FleetVerb.ORDER, FleetVerb.SPARE, FleetVerb.COUNT, FleetVerb.VOLUME)
        ]
        assert len(made) == len(set(made))


def test_the_number_of_nodes_can_be_given() -> None:
    assert draw(1, nodes=50).nodes == 50


def test_a_light_fleet_is_asked_for_no_more_than_its_worker_plays() -> None:
    verbs = {operation.verb for seed in range(20) for operation in draw(seed, nodes=30, light=True).operations}
    assert (
        verbs & {FleetVerb.SPARE, FleetVerb.VOLUME, FleetVerb.CORDON, FleetVerb.DRAIN, FleetVerb.FORGET} == set()
        and FleetVerb.COUNT in verbs
    )
