import pytest

from hawker.catalog.peers import Peer, Peers
from hawker.catalog.rumor import DIRECT, choose, fan_out, is_direct, pick
from hawker.clock import ManualClock
from hawker.ids import NodeId


def fleet(near: int, far: int) -> Peers:
    peers = Peers("mad")
    for number in range(near + far):
        peers.tell(Peer(NodeId(f"{number:08x}"), "mad" if number < near else "ams", 0.0))
    return peers


@pytest.mark.parametrize(("nodes", "told"), [(1, 0), (2, 1), (3, 2), (10, 4), (100, 6), (1000, 8)])
def test_the_fan_out_grows_with_the_logarithm(nodes: int, told: int) -> None:
    assert fan_out(nodes) == told


def test_half_of_those_chosen_are_near() -> None:
    peers, clock = fleet(50, 950), ManualClock()
    for _ in range(50):
        chosen = choose(peers, clock.random, without=())
        assert len(set(chosen)) == len(chosen) == 8
        assert sum(node in peers.near for node in chosen) >= 4


@pytest.mark.parametrize(
    ("near", "far", "direct"), [(0, 0, True), (DIRECT, 0, True), (DIRECT + 1, 0, False), (3, 1, False)]
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
