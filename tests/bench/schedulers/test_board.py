from hypothesis import given
from hypothesis import strategies as st

from bench.schedulers.board import Board
from bench.schedulers.host import Host
from bench.schedulers.valuation import node_id
from hawker.api.directory import Node
from hawker.market.preferences import Limits, preferences
from hawker.market.survey import by_promise, rounds
from hawker.node import Capacity, Resources
from tests.bench.schedulers.pieces import Stage, host, order, stage

WISHES = preferences(limits=Limits(ask_all_up_to=4, ask_best=3, ask_random=2, ask_rounds=3))


def board(hosts: list[Host]) -> tuple[Stage, Board]:
    on = stage()
    return on, Board(hosts, WISHES, on.tools.costs, on.timeline, on.tools.clock)


def published(each: Host) -> Node:
    return Node(
        id=node_id(each),
        region="sim",
        labels={},
        capacity=Capacity(cpus=each.cpus // 8, memory_mib=each.memory_mib, disk_mib=1000),
        used=Resources(shared_cpus=each.cpus - each.cpus_left, memory_mib=each.memory_mib - each.memory_left),
    )


@given(
    used=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 32_768)), min_size=1, max_size=30),
    seed=st.floats(0, 1, exclude_max=True),
)
def test_the_candidates_are_those_of_the_broker(used: list[tuple[int, int]], seed: float) -> None:
    hosts = [host(number) for number in range(len(used))]
    for each, (cpus, memory_mib) in zip(hosts, used, strict=True):
        each.take(order(each.number, cpus=cpus, memory_mib=memory_mib))
    known = by_promise([published(each) for each in hosts], WISHES)
    wanted = [[node.id for node in part] for part in rounds(known, WISHES.limits, seed)]
    found = [[node_id(each) for each in part] for part in board(hosts)[1].rounds(seed)]
    assert found == wanted


def test_a_change_is_published_later_and_once_for_all_of_a_second() -> None:
    hosts = [host(number) for number in range(2)]
    on, there = board(hosts)
    for number in range(5):
        hosts[0].take(order(number))
        there.changed(hosts[0])
    assert [each.number for each in next(there.rounds(0.0))] == [0, 1]
    on.timeline.run(until=2.0)
    assert there.published == 1
    assert [each.number for each in next(there.rounds(0.0))] == [1, 0]


def test_down_host_is_left_out_once_that_is_known() -> None:
    hosts = [host(number) for number in range(3)]
    _, there = board(hosts)
    hosts[1].up = False
    assert len(there) == 3
    there.noticed(hosts[1])
    there.noticed(hosts[1])
    assert [each.number for each in next(there.rounds(0.0))] == [0, 2]
    hosts[1].up = True
    there.noticed(hosts[1])
    assert len(there) == 3


def test_an_empty_board_has_nobody_to_ask() -> None:
    hosts = [host()]
    _, there = board(hosts)
    hosts[0].up = False
    there.noticed(hosts[0])
    assert list(there.rounds(0.5)) == []
