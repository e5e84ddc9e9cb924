from hawker.catalog.peers import Peer, Peers
from hawker.catalog.sync import EVERY_S, Rounds
from hawker.clock import ManualClock
from tests.catalog.kit import A, B


def test_every_fourth_round_goes_to_another_region() -> None:
    peers, clock = Peers("mad"), ManualClock()
    peers.tell(Peer(A, "mad", 0.0))
    peers.tell(Peer(B, "ams", 0.0))
    rounds = Rounds(0.0, clock.random)
    assert [rounds.next(0.0, peers) for _ in range(8)] == [A, A, A, B, A, A, A, B]


def test_who_is_alone_in_its_region_compares_with_others() -> None:
    peers = Peers("mad")
    rounds = Rounds(0.0, ManualClock().random)
    assert rounds.next(0.0, peers) is None
    peers.tell(Peer(B, "ams", 0.0))
    assert rounds.next(0.0, peers) == B


def test_rounds_are_two_seconds_apart_give_or_take_a_fifth() -> None:
    rounds = Rounds(0.0, ManualClock().random)
    for _ in range(100):
        rounds.next(50.0, Peers("mad"))
        assert 0.8 * EVERY_S <= rounds.due - 50.0 <= 1.2 * EVERY_S
