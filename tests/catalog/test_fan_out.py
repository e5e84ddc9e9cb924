import pytest

from hawker.catalog.fan_out import (
    DEFAULT_RTT_S,
    DIRECT_PEERS,
    ReplicaPeer,
    ReplicaPeers,
    choose,
    fan_out_size,
    is_direct,
    pick,
)
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import A, B, C


def test_near_are_those_of_the_own_region() -> None:
    peers = ReplicaPeers("mad")
    peers.tell(ReplicaPeer(A, "mad", 0.0))
    peers.tell(ReplicaPeer(B, "ams", 0.1))
    assert (peers.alive, peers.near) == ([A, B], [A])
    assert A in peers and C not in peers


def test_lost_peer_is_not_chosen_and_moved_peer_is_listed_once() -> None:
    peers = ReplicaPeers("mad")
    peers.tell(ReplicaPeer(A, "ams", 0.0))
    peers.tell(ReplicaPeer(A, "mad", 0.0))
    assert (peers.alive, peers.near) == ([A], [A])
    peers.lose(A)
    peers.lose(A)
    assert (peers.alive, peers.near) == ([], [])


def test_a_round_trip_that_was_never_measured_is_assumed() -> None:
    peers = ReplicaPeers("mad")
    peers.tell(ReplicaPeer(A, "mad", 0.0))
    peers.tell(ReplicaPeer(B, "mad", 0.2))
    assert (peers.rtt_s(A), peers.rtt_s(B), peers.rtt_s(C)) == (DEFAULT_RTT_S, 0.2, DEFAULT_RTT_S)


def fleet(near: int, far: int) -> ReplicaPeers:
    peers = ReplicaPeers("mad")
    for number in range(near + far):
        peers.tell(ReplicaPeer(NodeId(f"{number:08x}"), "mad" if number < near else "ams", 0.0))
    return peers


@pytest.mark.parametrize(("nodes", "told"), [(1, 0), (2, 1), (3, 2), (10, 4), (100, 6), (1000, 8)])
def test_the_fan_out_grows_with_the_logarithm(nodes: int, told: int) -> None:
    assert fan_out_size(nodes) == told


def test_half_of_those_chosen_are_near() -> None:
    peers, clock = fleet(50, 950), ManualClock()
    for _ in range(50):
        chosen = choose(peers, clock.random, without=())
        assert len(set(chosen)) == len(chosen) == 8
        assert sum(node in peers.near for node in chosen) >= 4


@pytest.mark.parametrize(
    ("near", "far", "direct"), [(0, 0, True), (DIRECT_PEERS, 0, True), (DIRECT_PEERS + 1, 0, False), (3, 1, False)]
)
def test_a_few_of_one_region_are_told_directly(near: int, far: int, direct: bool) -> None:
    assert is_direct(fleet(near, far)) is direct


def test_nobody_is_told_who_knows() -> None:
    peers, clock = fleet(3, 3), ManualClock()
    without = peers.alive[:4]
    assert set(choose(peers, clock.random, without=without)) == set(peers.alive[4:])


def test_everybody_is_chosen_sometimes() -> None:
    clock, among = ManualClock(), [NodeId(str(number)) for number in range(10)]
    seen = {node for _ in range(200) for node in pick(among, 2, clock.random, without=among[:1])}
    assert seen == set(among[1:])
    assert len(set(pick(among, 8, clock.random))) == 8
