from hawker.node import Capacity
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.operation import NATURE, FleetOperation, FleetPlan, FleetVerb
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.planted import find
from hawker.sim.fleet.shrink import shortest, shrink
from hawker.sim.fleet.simulation import FleetOutcome, play

KEPT = Violation(Invariant.KEPT, "m", "gone")


def outcome(plan: FleetPlan, *found: Violation) -> FleetOutcome:
    return FleetOutcome(plan, 0, 0, 0, 0, 0, 0, 1e9, "", (), found)


def plan_of(count: int, nodes: int) -> FleetPlan:
    deeds = tuple(
        FleetOperation(number, number, NATURE, FleetVerb.KILL, nodes=(number % nodes,))
        for number in range(1, count + 1)
    )
    return FleetPlan(1, nodes, 2, Capacity(cpus=1, memory_mib=1, disk_mib=1), deeds)


def shrunk(nodes_needed: int, *needed: int, tries: int = 100) -> tuple[FleetPlan, int]:
    """Of a run that breaks among so many nodes when all of these deeds are there; how many runs it took."""
    runs = 0

    def again(plan: FleetPlan) -> FleetOutcome:
        nonlocal runs
        runs += 1
        there = {deed.number for deed in plan.deeds}
        return outcome(plan, *((KEPT,) if plan.nodes >= nodes_needed and there >= {*needed} else ()))

    found = shortest(outcome(plan_of(30, 12), KEPT), again, tries)
    return found.plan, runs


def test_only_what_is_needed_is_left_among_as_few_nodes_as_will_do() -> None:
    plan, _ = shrunk(5, 3, 17)
    assert [deed.number for deed in plan.deeds] == [3, 17]
    assert (plan.nodes, plan.regions) == (5, 1) and [deed.nodes for deed in plan.deeds] == [(3,), (0,)]


def test_the_fleet_stays_as_large_as_it_must_be() -> None:
    assert shrunk(12, 3)[0].nodes == 12


def test_runs_are_bounded() -> None:
    plan, runs = shrunk(3, 3, 17, tries=6)
    assert runs == 6 and {deed.number for deed in plan.deeds} >= {3, 17}


def test_a_planted_bug_gives_a_short_story_that_shows_it_again() -> None:
    kit = find("no-cancel")
    found = play(draw(1, 0.2), kit)
    assert found.found
    story = shrink(found, kit, tries=8)
    assert 2 * len(story.plan.deeds) < len(found.plan.deeds)
    assert play(story.plan, kit).digest == story.digest
