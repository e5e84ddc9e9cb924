"""Plans: the same from the same seed, in order, with every kind of blow."""

from hawker.sim.edge.edge_plan import ABROAD, ALL, OTHER_NUMBER, RUN_S, STEERED, EdgeVerb, draw
from hawker.sim.edge.played_apps import DATAGRAM_MACHINES, DATAGRAM_PORTS
from hawker.sim.edge.played_machine import HOME

MACHINE_BLOWS = {EdgeVerb.STOP, EdgeVerb.CRASH, EdgeVerb.CORDON}


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


def test_two_plans_of_eight_have_one_host_in_another_region_and_none_else_says_regions() -> None:
    plans = [draw(seed) for seed in range(1, 25)]
    two = [plan for plan in plans if ABROAD in plan.regions]
    assert [plan.seed for plan in two] == [6, 7, 14, 15, 22, 23]
    assert {plan.regions.index(ABROAD) for plan in two} == {0, 1, 2}
    assert all(plan.regions.count(ABROAD) == 1 for plan in two)
    said = {part for plan in two for each in plan.operations for part in each.word.split()[5:]}
    assert said == {f"{how}:{region}" for how in STEERED for region in (HOME, ABROAD)}
    asked = [each for plan in plans if plan not in two for each in plan.operations if each.verb is EdgeVerb.ASK]
    assert not any(each.word.split()[5:] for each in asked)


def test_two_other_plans_of_eight_have_machines_ask_at_private_addresses_of_both_networks() -> None:
    private = {
        plan.seed: [each.word.split() for each in plan.operations if each.verb is EdgeVerb.PRIVATE]
        for plan in map(draw, range(1, 49))
    }
    assert [seed for seed, words in private.items() if words] == [seed for seed in private if seed % 8 in (4, 5)]
    assert {seed for seed in private if not draw(seed).filtered} == {12, 13, 28, 29, 44, 45}
    words = [each for found in private.values() for each in found]
    assert {(asker, network) for asker, network, *_ in words} == {(a, b) for a in "79" for b in "79"}
    assert {named == app for _, _, named, app, *_ in words} == {True, False}


def test_four_plans_of_sixteen_have_flows_of_datagrams_and_blows_to_their_machines() -> None:
    plans = {seed: draw(seed) for seed in range(1, 49)}
    flows = {seed: [each for each in plan.operations if each.verb is EdgeVerb.FLOW] for seed, plan in plans.items()}
    assert [seed for seed, found in flows.items() if found] == [seed for seed in plans if seed % 16 in (0, 9, 10, 15)]
    assert all(plans[seed].datagrams is bool(found) for seed, found in flows.items())
    assert {each.word.split()[0] for found in flows.values() for each in found} == set(DATAGRAM_PORTS)
    blows = {each.word for plan in plans.values() for each in plan.operations if each.verb in MACHINE_BLOWS}
    assert blows >= set(DATAGRAM_MACHINES)
