from hawker.clock import ManualClock
from hawker.gossip.contract import Fate
from hawker.gossip.members import Roster
from hawker.gossip.peer import Peer
from hawker.gossip.probes import Order, Probe, Relay, Relays
from tests.gossip.solo import claim, node, says


def roster(*numbers: int) -> Roster:
    members = Roster(Peer(says(1), 0), 100, {})
    for number in numbers:
        members.add(says(number), 0)
    return members


def test_everyone_has_a_turn_before_anyone_has_two() -> None:
    members, order = roster(2, 3, 4, 5), Order(ManualClock().random)
    for _ in range(5):
        turn = [order.next(members) for _ in range(4)]
        assert {peer.node for peer in turn if peer} == {node(2), node(3), node(4), node(5)}


def test_who_is_gone_is_passed_over() -> None:
    members, order = roster(2, 3), Order(ManualClock().random)
    gone = members.get(node(2))
    assert gone is not None
    members.change(gone, claim(2, Fate.DOWN), 0)
    asked = [order.next(members) for _ in range(3)]
    assert [peer.node for peer in asked if peer] == [node(3)] * 3


def test_alone_there_is_nobody_to_ask() -> None:
    assert Order(ManualClock().random).next(roster()) is None


def test_a_newcomer_has_its_turn_in_this_round() -> None:
    members, order = roster(2, 3, 4), Order(lambda: 0.999)
    order.next(members)
    members.add(says(5), 0)
    order.joins(node(5))
    order.joins(node(5))
    asked = [order.next(members) for _ in range(3)]
    assert [peer.node for peer in asked if peer].count(node(5)) == 1


def test_who_may_answer() -> None:
    probe = Probe(1, node(2), 0, 1)
    assert probe.answered(node(2), node(2)) and not probe.answered(node(3), node(3))
    assert not probe.answered(node(2), node(3))
    probe.relays = frozenset({node(3)})
    assert probe.answered(node(2), node(3))


def test_silence_of_relays_is_our_own_fault() -> None:
    probe = Probe(1, node(2), 0, 1)
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
