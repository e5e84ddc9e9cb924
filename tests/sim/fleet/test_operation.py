from hawker.node import Capacity
from hawker.sim.fleet.operation import NATURE, FleetOperation, FleetPlan, FleetVerb


def test_a_plan_can_be_cut_to_some_of_its_deeds_and_told_by_who_acts() -> None:
    deeds = (
        FleetOperation(1, 0.1, "ann", FleetVerb.ORDER),
        FleetOperation(2, 0.2, NATURE, FleetVerb.KILL),
        FleetOperation(3, 0.3, "ann", FleetVerb.STOP),
    )
    plan = FleetPlan(1, 3, 1, Capacity(cpus=1, memory_mib=1, disk_mib=1), deeds)
    assert plan.of("ann") == (deeds[0], deeds[2])
    assert plan.only(frozenset({2})).deeds == (deeds[1],)


def test_a_plan_can_be_folded_to_fewer_nodes() -> None:
    room = Capacity(cpus=1, memory_mib=1, disk_mib=1)
    plan = FleetPlan(1, 9, 2, room, (FleetOperation(1, 0.1, "ann", FleetVerb.ORDER, nodes=(8, 2, 5, 0)),))
    folded = plan.within(3)
    assert (folded.nodes, folded.regions, folded.deeds[0].nodes) == (3, 1, (2, 0)) and plan.within(9) is plan
