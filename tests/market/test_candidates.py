from typing import Any

import pytest

from hawker.api.directory import Node
from hawker.config.placement import Placement
from hawker.ids import NodeId
from hawker.market.candidates import Fields, Wanted, by_promise, rounds, unfit
from hawker.market.preferences import Limits, preferences
from hawker.node import Capacity, Resources

ROOM = Capacity(cpus=100, memory_mib=1000, disk_mib=1000, shared_ratio=1.0)


def node(number: int = 0, used: float | None = None, **fields: Any) -> Node:
    held = None if used is None else Resources(shared_cpus=int(used * 100), memory_mib=int(used * 1000))
    capacity = None if used is None else ROOM
    given = {"region": "mad", "labels": {"disk": "ssd"}, "drivers": ("crun",), **fields}
    return Node(id=NodeId(f"{number:08x}"), capacity=capacity, used=held, **given)


LIMITS = Limits()
ANY = Wanted(placement=Placement())


@pytest.mark.parametrize(
    ("fields", "wanted", "why"),
    [
        ({}, ANY, None),
        ({"alive": False}, ANY, "the node cannot be reached"),
        ({"cordoned": True}, ANY, "the node is cordoned"),
        ({"draining": True, "cordoned": True}, ANY, "the node is draining"),
        ({}, Wanted(placement=Placement(driver="crun", labels={"disk": "ssd"})), None),
        ({}, Wanted(placement=Placement(driver="microvm")), "the node does not offer the driver microvm"),
        ({}, Wanted(placement=Placement(labels={"disk": "hdd"})), "the node does not have the label disk=hdd"),
        ({}, Wanted(placement=Placement(), pinned=NodeId("0000000a")), "the order's volume is on node 0000000a"),
        ({}, Wanted(placement=Placement(), pinned=NodeId("00000000")), None),
        ({}, Wanted(placement=Placement(), avoid=frozenset({NodeId("00000000")})), "the order is not to go there"),
    ],
)
def test_nodes_not_asked_and_the_reason(fields: dict[str, Any], wanted: Wanted, why: str | None) -> None:
    assert unfit(node(**fields), wanted) == why


def test_a_small_region_is_asked_all_at_once() -> None:
    (only,) = rounds([node(number) for number in range(16)], LIMITS, 0.5)
    assert len(only) == 16
    assert list(rounds([], LIMITS, 0.5)) == []


def test_of_a_large_region_the_best_known_are_asked_with_some_others() -> None:
    nodes = [node(number, used=number / 100) for number in range(100)]
    assert by_promise(nodes[::-1], preferences()) == nodes
    parts = list(rounds(nodes, LIMITS, 0.5))
    assert [len(part) for part in parts] == [16] * 4
    assert [each.id for each in parts[0][:12]] == [each.id for each in nodes[:12]]
    asked = [each.id for part in parts for each in part]
    assert len(set(asked)) == len(asked)
    other = next(rounds(nodes, LIMITS, 0.1))
    assert other[:12] == parts[0][:12] and other[12:] != parts[0][12:]


def test_nodes_of_which_nothing_is_known_come_after_those_that_have_room() -> None:
    prefer = preferences(limits=Limits(ask_all_up_to=1, ask_best=1, ask_random=0, ask_rounds=3))
    nodes = by_promise([node(1), node(2, used=0.5), node(3, used=0.1)], prefer)
    parts = list(rounds(nodes, prefer.limits, 0.0))
    assert [part[0].id for part in parts] == ["00000003", "00000002", "00000001"]


def test_the_same_nodes_are_judged_once_for_each_kind_of_order() -> None:
    fields, one, other = Fields(preferences()), node(1, used=0.5), node(2, used=0.1, region="lhr")
    there = (one, other, node(3, cordoned=True))
    found = fields.of(there, "mad", ANY)
    assert (found.fit, found.passed_over) == ([one], {"00000003": "the node is cordoned"})
    assert fields.of(there, "mad", Wanted(placement=Placement())) is found
    assert fields.of(there, "lhr", ANY).fit == [other]
    assert not fields.of(there, "mad", Wanted(placement=Placement(driver="microvm"))).fit
    assert fields.of(there, "mad", ANY) is found
    assert fields.of((one, other), "mad", ANY).passed_over == {}


def test_nodes_that_may_change_where_they_are_are_looked_at_anew() -> None:
    fields, there = Fields(preferences()), [node(1), node(2)]
    assert len(fields.of(there, "mad", ANY).fit) == 2
    there[0] = node(1, alive=False)
    assert len(fields.of(there, "mad", ANY).fit) == 1


def test_no_more_kinds_of_orders_are_remembered_than_fit() -> None:
    fields, there = Fields(preferences()), (node(1),)
    for number in range(100):
        fields.of(there, "mad", Wanted(placement=Placement(labels={"n": str(number)})))
    assert len(fields._known) == 16
