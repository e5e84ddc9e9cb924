from hawker.catalog.peers import DEFAULT_RTT_S, Peer, Peers
from tests.catalog.kit import A, B, C


def test_near_are_those_of_the_own_region() -> None:
    peers = Peers("mad")
    peers.tell(Peer(A, "mad", 0.0))
    peers.tell(Peer(B, "ams", 0.1))
    assert (peers.alive, peers.near) == ([A, B], [A])
    assert A in peers and C not in peers


def test_who_is_lost_is_asked_no_more_and_who_moves_is_told_once() -> None:
    peers = Peers("mad")
    peers.tell(Peer(A, "ams", 0.0))
    peers.tell(Peer(A, "mad", 0.0))
    assert (peers.alive, peers.near) == ([A], [A])
    peers.lose(A)
    peers.lose(A)
    assert (peers.alive, peers.near) == ([], [])


def test_a_round_trip_that_was_never_measured_is_assumed() -> None:
    peers = Peers("mad")
    peers.tell(Peer(A, "mad", 0.0))
    peers.tell(Peer(B, "mad", 0.2))
    assert (peers.rtt_s(A), peers.rtt_s(B), peers.rtt_s(C)) == (DEFAULT_RTT_S, 0.2, DEFAULT_RTT_S)
