"""The gates under random deeds, and the bugs that the same look finds when they are planted."""

import random
from collections.abc import Callable

import msgspec
import pytest

from hawker.edge.gates import SOFT_LIMIT, Gate, Gates, hard_limit, soft_limit
from hawker.edge.routes import ServiceTarget
from hawker.feed import GatePlace, MachineRoute, RouteHealth
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.machine import State
from tests.edge.edge_kit import route, seen_from_abroad, seen_from_afar

replace = msgspec.structs.replace


def test_a_flow_is_kept_while_its_instance_is_up_and_open() -> None:
    machine = route(80, 1)
    gate = Gate(machine, 0.0)
    assert gate.keeps(machine.instance) and not gate.keeps(InstanceId("another"))
    assert machine.instance is not None
    gate.close(machine.instance)
    assert not gate.keeps(machine.instance)
    gate.reopen(machine.instance, 0.0)
    gate.update(msgspec.structs.replace(machine, state=State.SUSPENDED), 1.0)
    assert not gate.keeps(machine.instance)


def target_of(machine: MachineRoute) -> ServiceTarget:
    service = machine.services[0]
    return ServiceTarget(machine, 0, service, (service.ports or ())[0])


def gates_of(*machines: MachineRoute, known: dict[MachineId, MachineRoute] | None = None) -> Gates:
    known = {} if known is None else known
    known.update((machine.id, machine) for machine in machines)
    gates = Gates(random.Random(1).random, known)
    for machine in machines:
        gates.update(machine, 0.0)
    return gates


def test_the_least_loaded_machine_is_chosen_and_a_hard_limit_is_never_passed() -> None:
    small, large = route(80, 1, soft=1, hard=2), route(80, 1, soft=10, hard=10)
    gates, targets = gates_of(small, large), [target_of(small), target_of(large)]
    for _ in range(12):
        found = gates.choose(targets, 0.0)
        assert found is not None
        gates.of[found.machine.id].enter(0)
    assert (gates.of[small.id].total, gates.of[large.id].total) == (2, 10)
    assert gates.choose(targets, 0.0) is None


def test_a_gate_of_another_host_is_made_when_it_is_asked_for_and_counts_from_then_on() -> None:
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    far = [msgspec.structs.replace(route(80, 1, hard=1), gate=gate) for _ in range(3)]
    known = dict[MachineId, MachineRoute]()
    gates = gates_of(*far, known=known)
    assert list(gates.of) == [] and all(each.id in gates.of for each in far)
    found = gates.choose([target_of(far[0])], 0.0)
    assert found is not None and list(gates.of) == [far[0].id]
    gates.of[far[0].id].enter(0)
    gates.update(msgspec.structs.replace(far[0], cordoned=True), 0.0)
    assert gates.of[far[0].id].total == 1 and gates.choose([target_of(far[0])], 0.0) is None
    del known[far[1].id]
    gates.forget(far[1].id)
    assert gates.of.get(far[1].id) is None and far[1].id not in gates.of
    with pytest.raises(KeyError):
        gates.of[far[1].id]
    near = msgspec.structs.replace(far[2], gate=None)
    gates.update(near, 5.0)
    assert gates.of[near.id].is_near and gates.of[near.id].opened_at == 5.0


def test_a_gate_that_nobody_has_asked_for_is_avoided_with_its_host() -> None:
    place = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    lost = msgspec.structs.replace(route(80, 1), gate=place)
    spared = msgspec.structs.replace(route(80, 1), gate=msgspec.structs.replace(place, host="10.0.0.3"))
    gates = gates_of(lost, spared)
    gates.avoid_host(place, 1.0)
    assert gates.choose([target_of(lost)], 0.5) is None and gates.choose([target_of(spared)], 0.5) is not None
    assert gates.of[lost.id].is_doubted, "after that one tries"


def test_a_machine_that_fails_is_avoided_each_time_for_longer() -> None:
    machine = route(80, 1)
    gates = gates_of(machine)
    gate, targets = gates.of[machine.id], [target_of(machine)]
    gate.failed(0, 10.0)
    assert gates.choose(targets, 10.9) is None and gates.choose(targets, 11.0) is not None
    gate.failed(0, 11.0)
    assert gates.choose(targets, 12.9) is None and gates.choose(targets, 13.0) is not None
    gate.answered(0)
    gate.failed(0, 20.0)
    assert gates.choose(targets, 21.0) is not None


def test_a_gate_that_fails_many_at_once_is_avoided_as_if_it_failed_one() -> None:
    gate = Gate(route(80, 1), 0.0)
    for late_s in range(50):
        gate.failed(0, 10.0 + late_s / 100)
    assert gate.avoided(10.9) and not gate.avoided(11.0)
    gate.failed(0, 11.0)
    assert gate.avoided(12.9) and not gate.avoided(13.0), "and twice as long the second time"


def test_a_machine_that_never_answered_is_tried_by_one_at_a_time_while_another_has_room() -> None:
    old, new = route(80, 1), route(80, 1)
    gates, targets = gates_of(old, new), [target_of(old), target_of(new)]
    gates.of[old.id].answered(0)
    gates.of[old.id].enter(0)
    found = gates.choose(targets, 0.0)
    assert found is not None and found.machine.id == new.id and gates.is_trial(found, targets, 0.0)
    gates.of[new.id].enter(0)
    gates.of[old.id].enter(0)
    again = gates.choose(targets, 0.0)
    assert again is not None and again.machine.id == old.id and not gates.is_trial(again, targets, 0.0)
    gates.of[new.id].answered(0)
    least = gates.choose(targets, 0.0)
    assert least is not None and least.machine.id == new.id and not gates.is_trial(least, targets, 0.0)


def test_a_host_that_was_lost_is_tried_by_one_before_others_follow() -> None:
    place = GatePlace(node=NodeId("b" * 8), host="127.0.0.1", port=1)
    near, far = route(80, 1), seen_from_afar(route(80, 1), place)
    gates, targets = gates_of(near, far), [target_of(near), target_of(far)]
    gate = gates.of[far.id]
    gates.of[near.id].answered(0)
    for _ in range(3):
        gates.of[near.id].enter(0)
    gates.avoid_host(place, 1.0)
    assert gates.choose(targets, 0.9) is targets[0]
    assert gates.choose(targets, 1.0) is targets[1] and gates.is_trial(targets[1], targets, 1.0)
    gate.trial = object()
    assert gates.choose(targets, 1.0) is targets[0], "all others wait for what becomes of the one"
    gate.failed(0, 1.0)
    assert gates.choose(targets, 1.9) is targets[0] and gates.choose(targets, 2.0) is targets[1]
    gate.trial = object()
    gate.answered(0)
    assert gates.choose(targets, 2.0) is targets[1] and not gates.is_trial(targets[1], targets, 2.0)


def test_a_host_that_was_lost_is_tried_by_all_where_no_other_has_room() -> None:
    place = GatePlace(node=NodeId("b" * 8), host="127.0.0.1", port=1)
    far = seen_from_afar(route(80, 1), place)
    gates, targets = gates_of(far), [target_of(far)]
    gates.avoid_host(place, 1.0)
    gates.of[far.id].trial = object()
    assert gates.choose(targets, 1.0) is targets[0] and not gates.is_trial(targets[0], targets, 1.0)


def test_a_held_request_prefers_a_host_that_nobody_has_just_lost() -> None:
    lost, there = (GatePlace(node=NodeId(name * 8), host="127.0.0.1", port=1) for name in "bc")
    asleep = [seen_from_afar(route(80, 1, state=State.STOPPED, machine_id=name), lost) for name in "1"]
    asleep.append(seen_from_afar(route(80, 1, state=State.STOPPED, machine_id="2"), there))
    gates, targets = gates_of(*asleep), [target_of(each) for each in asleep]
    gates.avoid_host(lost, 1.0)
    assert gates.to_hold(targets, 1.0) is targets[0]
    gates.of[asleep[0].id].enter(0)
    assert gates.to_hold(targets, 1.0) is targets[1], "one tries the lost host"


def test_a_held_request_waits_for_the_machine_that_another_process_of_the_host_starts_first() -> None:
    """A burst that two processes took woke two machines where one was enough."""
    beside, away = (GatePlace(node=NodeId("b" * 8), host="127.0.0.1", port=port) for port in (0, 1))
    stopped, suspended, elsewhere = (
        route(80, 1, state=state, machine_id=name)
        for name, state in (("2", State.STOPPED), ("3", State.SUSPENDED), ("1", State.SUSPENDED))
    )
    (first,) = gates_of(stopped, suspended).to_wake([target_of(stopped), target_of(suspended)], 1, 0.0)
    asleep = [seen_from_afar(stopped, beside), seen_from_afar(suspended, beside), seen_from_afar(elsewhere, away)]
    held = gates_of(*asleep).to_hold([target_of(each) for each in asleep], 0.0)
    assert held is not None and held.machine.id == first.route.id == suspended.id


def test_a_machine_that_begins_to_listen_late_counts_as_room_to_come() -> None:
    busy, begins, asleep = route(80, 1, soft=1), route(80, 1, soft=1), route(80, 1, soft=1, state=State.STOPPED)
    gates, targets = gates_of(busy, begins, asleep), list(map(target_of, (busy, begins, asleep)))
    gates.of[busy.id].answered(0)
    for _ in range(2):
        gates.of[busy.id].enter(0)
    gates.of[begins.id].failed(0, 0.0)
    assert gates.to_wake(targets, 0, 0.5) == []
    gates.of[begins.id].failed(0, 100.0)
    assert [gate.route.id for gate in gates.to_wake(targets, 0, 100.5)] == [asleep.id]


@pytest.mark.parametrize("unfit", [{"cordoned": True}, {"health": RouteHealth.CRITICAL}, {"state": State.STOPPING}])
def test_nobody_comes_into_a_machine_that_is_not_open(unfit: dict[str, object]) -> None:
    machine = replace(route(80, 1), **unfit)
    assert gates_of(machine).choose([target_of(machine)], 0.0) is None


def test_a_burst_wakes_as_many_machines_as_its_soft_limits_need() -> None:
    asleep = [route(80, 1, soft=20, state=State.STOPPED) for _ in range(50)]
    gates, targets = gates_of(*asleep), list(map(target_of, asleep))
    for waiting in range(1, 101):
        for gate in gates.to_wake(targets, waiting, 0.0):
            gate.waking = True
    assert sum(gate.waking for gate in gates.of.values()) == 5


def test_a_burst_for_another_region_goes_to_one_of_its_hosts_until_its_soft_limit() -> None:
    """Each host wakes its own choice."""
    places = [GatePlace(node=NodeId(f"{number:08x}"), host="10.0.0.2", port=4291) for number in (1, 2, 3)]
    there = [seen_from_abroad(route(80, 8080), place) for place in places]
    gates, targets = gates_of(*there), [target_of(each) for each in there]
    for _ in range(2 * SOFT_LIMIT + 1):
        found = gates.choose(targets, 0.0)
        assert found is not None
        gates.of[found.machine.id].enter(found.number)
    assert sorted(gate.total for gate in gates.of.values()) == [1, SOFT_LIMIT, SOFT_LIMIT]


def test_a_suspended_machine_is_woken_before_a_stopped_one_and_a_refused_one_after_a_while() -> None:
    stopped, suspended = route(80, 1, state=State.STOPPED), route(80, 1, state=State.SUSPENDED)
    gates, targets = gates_of(stopped, suspended), [target_of(stopped), target_of(suspended)]
    (first,) = gates.to_wake(targets, 1, 0.0)
    assert first.route.id == suspended.id
    first.refused_wake("no room", 0.0)
    (second,) = gates.to_wake(targets, 1, 0.0)
    assert second.route.id == stopped.id
    second.refused_wake("no room", 0.0)
    assert not gates.to_wake(targets, 1, 0.5) and gates.to_wake(targets, 1, 1.0)


def test_one_more_is_woken_when_all_that_run_are_over_their_soft_limit() -> None:
    runs, sleeps = route(80, 1, soft=2), route(80, 1, state=State.STOPPED)
    gates, targets = gates_of(runs, sleeps), [target_of(runs), target_of(sleeps)]
    for expected in ([], [], [sleeps.id]):
        gates.of[runs.id].enter(0)
        assert [gate.route.id for gate in gates.to_wake(targets, 0, 0.0)] == expected


def test_a_suspended_instance_is_open_again_once_it_goes_on() -> None:
    machine = route(80, 1)
    gates = gates_of(machine)
    gate, instance = gates.of[machine.id], machine.instance or InstanceId("")
    gate.close(instance)
    assert not gate.is_open
    gate.update(replace(machine, idle_s=1.0), 1.0)
    assert not gate.is_open, "what the worker says of something else opens nothing"
    gate.update(replace(machine, state=State.SUSPENDED, instance=None), 2.0)
    gate.update(machine, 3.0)
    assert gate.is_open


def violations(seed: int, make: Callable[[MachineRoute, float], Gate]) -> list[str]:
    """Random arrivals, ends, rests, stops and starts; what was seen that must not be."""
    chance, now, found = random.Random(seed), 0.0, list[str]()
    gates = Gates(chance.random, {})
    for number in range(3):
        machine = route(80, 1, soft=2, hard=3, machine_id=f"{number}")
        gates.of[machine.id] = make(machine, now)
    inside: dict[MachineId, int] = dict.fromkeys(gates.of, 0)  # what the app itself would count
    closed: set[MachineId] = set()
    for step in range(120):
        now += chance.random()
        gate = chance.choice(list(gates.of.values()))
        machine_id = gate.route.id
        match chance.choice(("come", "come", "go", "rest", "refuse", "stop", "start")):
            case "come":
                target = gates.choose([target_of(each.route) for each in gates.of.values()], now)
                if target is not None:
                    gates.of[target.machine.id].in_flight.setdefault(0, 0)
                    gates.of[target.machine.id].enter(0)
                    inside[target.machine.id] += 1
                    if target.machine.id in closed:
                        found.append("let in while closed")
            case "go" if inside[machine_id]:
                gate.leave(0, now)
                inside[machine_id] -= 1
            case "rest" if gate.is_open and not gate.total and gate.route.instance:
                gate.close(gate.route.instance)
                closed.add(machine_id)
                if inside[machine_id]:
                    found.append("rests while somebody is in there")
            case "refuse" if machine_id in closed and gate.route.instance:
                gate.reopen(gate.route.instance, now)
                closed.discard(machine_id)
            case "stop" if machine_id in closed and not inside[machine_id]:
                gate.update(replace(gate.route, state=State.STOPPED, instance=None), now)
            case "start" if gate.route.state is State.STOPPED:
                gate.update(replace(gate.route, state=State.STARTED, instance=InstanceId(f"{step}")), now)
                closed.discard(machine_id)
        if any(count > 3 for count in inside.values()):
            found.append("above the hard limit")
    return found


def test_no_deeds_break_a_promise_of_the_gates() -> None:
    assert [violations(seed, Gate) for seed in range(100)] == [[]] * 100


class AdmitsWhileClosing(Gate):
    @property
    def is_open(self) -> bool:
        return self.route.state is State.STARTED


class ForgetsItsCount(Gate):
    """As if another process had taken over without the counts of the one before."""

    def leave(self, number: int, now: float) -> None:
        self.in_flight[number] = self.total = 0


class HasAlwaysRoom(Gate):
    def has_room(self, target: ServiceTarget) -> bool:
        return True


@pytest.mark.parametrize("planted", [AdmitsWhileClosing, ForgetsItsCount, HasAlwaysRoom])
def test_a_planted_bug_is_found(planted: type[Gate]) -> None:
    assert any(violations(seed, planted) for seed in range(40))


def test_limits_have_their_defaults() -> None:
    bare = target_of(route(80, 1))
    assert soft_limit(bare) == 20 and hard_limit(bare) == float("inf")
    assert soft_limit(target_of(route(80, 1, hard=7))) == 7
