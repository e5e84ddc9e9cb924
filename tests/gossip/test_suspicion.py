from hypothesis import given
from hypothesis import strategies as st

from hawker.gossip.suspicion import Suspicion
from hawker.ids import NodeId

A, B, C, D = (NodeId(letter * 8) for letter in "abcd")


def test_alone_it_waits_longest_and_with_all_shortest() -> None:
    suspicion = Suspicion(100, 4, 24, 2, A)
    assert suspicion.due == 124
    assert suspicion.confirm(B)
    assert 104 < suspicion.due < 124
    assert suspicion.confirm(C)
    assert suspicion.due == 104


def test_only_others_confirm_and_only_as_many_as_count() -> None:
    suspicion = Suspicion(100, 4, 24, 2, A)
    assert not suspicion.confirm(A)
    assert suspicion.confirm(B) and not suspicion.confirm(B)
    assert suspicion.confirm(C) and not suspicion.confirm(D)
    assert (suspicion.confirmed, suspicion.accuser) == (2, A)


def test_where_nobody_can_confirm_it_waits_shortest() -> None:
    assert Suspicion(100, 4, 24, 0, A).due == 104


def test_a_late_confirmation_leaves_time_to_ask() -> None:
    suspicion = Suspicion(100, 4, 24, 1, A)
    suspicion.confirm(B)
    suspicion.hold(115)
    assert suspicion.due == 115
    suspicion.postpone(5)
    assert suspicion.due == 120


def test_it_waits_for_one_who_stood_still() -> None:
    suspicion = Suspicion(100, 4, 24, 0, A)
    suspicion.postpone(7)
    assert suspicion.due == 111


def test_before_the_end_it_asks_the_suspect_itself() -> None:
    suspicion = Suspicion(100, 4, 24, 0, A)
    asked = []
    while (at := suspicion.calls_at(1.0)) < suspicion.due:
        asked.append(at)
        suspicion.called += 1
    assert asked == [101, 102, 103]


@given(st.integers(1, 10), st.lists(st.integers(0, 20), max_size=30))
def test_it_only_ever_gets_shorter_and_keeps_its_bounds(needed: int, accusers: list[int]) -> None:
    suspicion = Suspicion(0, 4, 24, needed, A)
    before = suspicion.due
    for accuser in accusers:
        suspicion.confirm(NodeId(f"{accuser:08x}"))
        assert 4 <= suspicion.due <= before <= 24
        before = suspicion.due
