"""When a spare is started, from what its worker sees of the region."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.fleet.failover import ALIVE, DOWN, FailoverVerdict, Spare, Takeover, Watched, judge
from hawker.ids import AppName, MachineId, NodeId

A, B, C = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
LOST = Watched(id=MachineId("d0000000000001"), app=AppName("a"), owner=A, runs=True, seen=5.0)
FIRST, SECOND = Spare(id=MachineId("e0000000000001"), owner=B), Spare(id=MachineId("e0000000000002"), owner=C)
FATES = {A: DOWN, B: ALIVE, C: ALIVE}
TAKEN = Takeover(machine=LOST.id, spare=FIRST.id, seen=5.0)
SEEN_EARLIER = Takeover(machine=LOST.id, spare=FIRST.id, seen=4.0)
AT_REST = Watched(id=LOST.id, app=LOST.app, owner=A, runs=False, seen=5.0)


@pytest.mark.parametrize(
    ("spare", "watched", "fates", "takeovers", "witnesses", "verdict"),
    [
        (FIRST, LOST, FATES, [], 1, FailoverVerdict.START),
        (FIRST, LOST, FATES, [], 0, FailoverVerdict.WITNESS),
        (FIRST, LOST, {**FATES, A: "suspect"}, [], 1, FailoverVerdict.WATCH),
        (FIRST, LOST, {**FATES, A: ALIVE}, [], 1, FailoverVerdict.WATCH),
        (FIRST, LOST, {**FATES, A: "left"}, [], 1, FailoverVerdict.WATCH),
        (FIRST, LOST, {B: ALIVE, C: ALIVE}, [], 1, FailoverVerdict.WATCH),
        (FIRST, AT_REST, FATES, [], 1, FailoverVerdict.WATCH),
        (FIRST, LOST, {A: DOWN, B: ALIVE}, [], 1, FailoverVerdict.MINORITY),
        (FIRST, LOST, {**FATES, C: DOWN}, [], 1, FailoverVerdict.MINORITY),
        (FIRST, LOST, FATES, [TAKEN], 1, FailoverVerdict.DONE),
        (FIRST, LOST, FATES, [SEEN_EARLIER], 1, FailoverVerdict.START),
        (SECOND, LOST, FATES, [], 1, FailoverVerdict.AFTER),
        (
            SECOND,
            LOST,
            {**FATES, B: DOWN, NodeId("ffffffff"): ALIVE, NodeId("eeeeeeee"): ALIVE},
            [],
            1,
            FailoverVerdict.START,
        ),
    ],
)
def test_verdicts(
    spare: Spare,
    watched: Watched,
    fates: Mapping[NodeId, str],
    takeovers: list[Takeover],
    witnesses: int,
    verdict: FailoverVerdict,
) -> None:
    assert judge(spare, watched, fates, [FIRST, SECOND], takeovers, witnesses) is verdict


def test_a_host_whose_daemon_is_away_is_not_lost() -> None:
    assert judge(FIRST, LOST, FATES, [FIRST], [], 1, away=True) is FailoverVerdict.AWAY
    assert judge(FIRST, LOST, FATES, [FIRST], [TAKEN], 1, away=True) is FailoverVerdict.DONE


@given(st.integers(2, 9), st.data())
def test_of_the_two_sides_of_a_partition_one_at_most_starts_a_spare(size: int, data: st.DataObject) -> None:
    nodes = [NodeId(f"{number:08x}") for number in range(size + 1)]
    owner, others = nodes[0], nodes[1:]
    side = set(data.draw(st.lists(st.sampled_from(others), unique=True)))
    hosts = data.draw(st.lists(st.sampled_from(others), min_size=2, max_size=4))
    spares = [Spare(id=MachineId(f"{number:014x}"), owner=host) for number, host in enumerate(hosts)]
    watched = Watched(id=LOST.id, app=LOST.app, owner=owner, runs=True, seen=1.0)
    started = set()
    for spare in spares:
        mine = side if spare.owner in side else set(others) - side
        fates = {node: ALIVE if node in mine else DOWN for node in nodes}
        if judge(spare, watched, fates, spares, [], len(mine) - 1) is FailoverVerdict.START:
            started.add(spare.id)
    assert len(started) <= 1
