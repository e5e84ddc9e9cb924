import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.gossip.contract import Fate
from hawker.gossip.failure_detector import LocalHealth, ProbeRound, Relay, Relays, RoundTrip, Suspicion, Timing
from hawker.gossip.members import MemberList, MemberState, ProbeOrder
from hawker.ids import NodeId
from tests.gossip.single_core import claim, node, says

TIMING = Timing()


@pytest.mark.parametrize(("members", "least_s"), [(1, 4), (3, 4), (10, 4), (100, 8), (1000, 12)])
def test_suspicion_grows_with_the_logarithm(members: int, least_s: float) -> None:
    assert TIMING.suspicion_s(members) == pytest.approx((least_s, least_s * 6))
    assert TIMING.suspicion_s(members, far=True) == pytest.approx((least_s * 1.5, least_s * 9))


@pytest.mark.parametrize(("members", "transmits"), [(1, 4), (3, 4), (10, 8), (99, 8), (100, 12), (1000, 16)])
def test_news_is_told_so_often(members: int, transmits: int) -> None:
    assert TIMING.transmits(members) == transmits


@pytest.mark.parametrize(("members", "needed"), [(2, 0), (3, 0), (4, 2), (100, 2)])
def test_confirmations_need_somebody_who_confirms(members: int, needed: int) -> None:
    assert TIMING.confirmations_of(members) == needed


def test_patience_follows_what_was_measured() -> None:
    trip = RoundTrip()
    assert trip.timeout_s(0.3, 0.1, 0.6) == 0.3
    for _ in range(50):
        trip.measured(0.001)
    assert trip.timeout_s(0.3, 0.1, 0.6) == 0.1
    for _ in range(50):
        trip.measured(0.05)
    assert 0.15 <= trip.timeout_s(0.3, 0.1, 0.6) < 0.2
    for _ in range(50):
        trip.measured(5.0)
    assert trip.timeout_s(0.3, 0.1, 0.6) == 0.6
    assert trip.seconds == pytest.approx(5.0, rel=0.01)


def test_patience_grows_with_trouble_and_has_bounds() -> None:
    health = LocalHealth(8)
    assert health.multiplier == 1
    health.better()
    assert health.score == 0
    health.worse(3)
    assert health.multiplier == 4
    health.worse(100)
    assert health.score == 8
    health.better()
    assert health.score == 7


def test_without_lifeguard_nothing_matters() -> None:
    health = LocalHealth(0)
    health.worse(5)
    assert health.multiplier == 1


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
    suspicion.delay_until(115)
    assert suspicion.due == 115
    suspicion.postpone(5)
    assert suspicion.due == 120


def test_suspicion_is_extended_when_this_node_stood_still() -> None:
    suspicion = Suspicion(100, 4, 24, 0, A)
    suspicion.postpone(7)
    assert suspicion.due == 111


def test_before_the_end_it_asks_the_suspect_itself() -> None:
    suspicion = Suspicion(100, 4, 24, 0, A)
    asked = []
    while (at := suspicion.reprobe_at(1.0)) < suspicion.due:
        asked.append(at)
        suspicion.reprobes += 1
    assert asked == [101, 102, 103]


@given(st.integers(1, 10), st.lists(st.integers(0, 20), max_size=30))
def test_suspicion_time_only_shrinks_and_keeps_its_bounds(needed: int, accusers: list[int]) -> None:
    suspicion = Suspicion(0, 4, 24, needed, A)
    before = suspicion.due
    for accuser in accusers:
        suspicion.confirm(NodeId(f"{accuser:08x}"))
        assert 4 <= suspicion.due <= before <= 24
        before = suspicion.due


def member_list(*numbers: int) -> MemberList:
    members = MemberList(MemberState(says(1), 0), 100, {})
    for number in numbers:
        members.add(says(number), 0)
    return members


def test_everyone_has_a_turn_before_anyone_has_two() -> None:
    members, order = member_list(2, 3, 4, 5), ProbeOrder(ManualClock().random)
    for _ in range(5):
        turn = [order.next(members) for _ in range(4)]
        assert {peer.node for peer in turn if peer} == {node(2), node(3), node(4), node(5)}


def test_probe_order_skips_members_that_are_gone() -> None:
    members, order = member_list(2, 3), ProbeOrder(ManualClock().random)
    gone = members.get(node(2))
    assert gone is not None
    members.change(gone, claim(2, Fate.DOWN), 0)
    asked = [order.next(members) for _ in range(3)]
    assert [peer.node for peer in asked if peer] == [node(3)] * 3


def test_alone_there_is_nobody_to_ask() -> None:
    assert ProbeOrder(ManualClock().random).next(member_list()) is None


def test_a_newcomer_has_its_turn_in_this_round() -> None:
    members, order = member_list(2, 3, 4), ProbeOrder(lambda: 0.999)
    order.next(members)
    members.add(says(5), 0)
    order.joins(node(5))
    order.joins(node(5))
    asked = [order.next(members) for _ in range(3)]
    assert [peer.node for peer in asked if peer].count(node(5)) == 1


def test_probe_is_acked_by_the_member_or_a_relay_only() -> None:
    probe = ProbeRound(1, node(2), 0, 1)
    assert probe.answered(node(2), node(2)) and not probe.answered(node(3), node(3))
    assert not probe.answered(node(2), node(3))
    probe.relays = frozenset({node(3)})
    assert probe.answered(node(2), node(3))


def test_silence_of_relays_is_our_own_fault() -> None:
    probe = ProbeRound(1, node(2), 0, 1)
    assert probe.missing == 1
    probe.relays, probe.nacks = frozenset({node(3), node(4), node(5)}), {node(3), node(4)}
    assert probe.missing == 1
    probe.nacks.add(node(5))
    assert probe.missing == 0


def test_a_relay_says_nack_once_and_passes_on_a_late_answer() -> None:
    relays = Relays()
    relays.add(7, Relay(1, "2:1", 10, 20))
    assert relays.due == 10
    assert [relay.seq for relay in relays.silent(10)] == [1]
    assert not list(relays.silent(11)) and relays.due == 20
    late = relays.answered(7)
    assert late is not None and late.address == "2:1"
    assert relays.due == float("inf")


def test_relays_end_and_are_bounded() -> None:
    relays = Relays()
    for seq in range(2000):
        relays.add(seq, Relay(seq, "2:1", 10, 20))
    assert len(relays) == 1024 and relays.answered(0) is None
    list(relays.silent(20))
    assert len(relays) == 0
