import pytest

from hawker.fleet.gossip_bridge import wrong_clocks
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId

ME = NodeId("0000000a")
DAY = 86_400.0


def member(node: int, skew_s: float, *, fate: Fate = Fate.ALIVE, rtt_s: float = 0.001) -> Member:
    return Member(node=NodeId(f"{node:08x}"), address="h:1", incarnation=1, fate=fate, rtt_s=rtt_s, skew_s=skew_s)


def found(*members: Member) -> dict[str, str]:
    return dict(wrong_clocks(ME, [member(0xA, 0.0, rtt_s=0.0), *members]))


def test_clocks_that_differ_by_a_minute_are_right() -> None:
    assert found(member(1, 59.0), member(2, -59.0)) == {}
    assert found() == {}


@pytest.mark.parametrize(("skew_s", "side"), [(DAY, "86400 s ahead of"), (-DAY, "86400 s behind")])
def test_one_of_many_is_wrong(skew_s: float, side: str) -> None:
    assert found(member(1, skew_s), member(2, 0.1), member(3, 0.2)) == {
        "00000001": f"its clock is {side} that of most nodes"
    }
    assert found(member(1, skew_s), member(2, 0.1)) == {"00000001": f"its clock is {side} that of most nodes"}


@pytest.mark.parametrize(("skew_s", "side"), [(DAY, "86400 s behind"), (-DAY, "86400 s ahead of")])
def test_where_most_others_say_the_same_it_is_this_nodes(skew_s: float, side: str) -> None:
    said = f"its clock is {side} those of most other nodes"
    assert found(member(1, skew_s), member(2, skew_s + 1)).keys() == {ME}
    assert found(member(1, skew_s), member(2, skew_s))[ME] == said
    assert found(member(1, skew_s), member(2, skew_s), member(3, 0.0)).keys() == {ME, "00000003"}


def test_of_two_nobody_can_tell_nor_where_all_differ() -> None:
    said = "its clock is 86400 s ahead of this node's, or this node's is wrong"
    assert found(member(1, DAY)) == {"00000001": said}
    assert found(member(1, DAY), member(2, -DAY))["00000001"] == said


def test_a_node_away_or_never_measured_does_not_count() -> None:
    assert found(member(1, DAY, fate=Fate.DOWN), member(2, DAY, rtt_s=0.0)) == {}
