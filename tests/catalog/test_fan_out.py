import pytest

from hawker.catalog.fan_out import (
    DEFAULT_RTT_S,
    DIRECT_PEERS,
    FAR_S,
    NEAR_S,
    RELAY_S,
    AddressedPush,
    PushBatcher,
    ReplicaPeer,
    ReplicaPeers,
    choose,
    fan_out_size,
    is_direct,
    pick,
)
from hawker.catalog.messages import Push, encode
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import ME, A, B, C, op, rumor, tx


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


SPREAD = [NodeId(f"{number:08x}") for number in range(60)]


def mailbag(*near: NodeId, far: tuple[NodeId, ...] = ()) -> PushBatcher:
    peers = ReplicaPeers("mad")
    for node in near:
        peers.tell(ReplicaPeer(node, "mad", 0.0))
    for node in far:
        peers.tell(ReplicaPeer(node, "ams", 0.0))
    return PushBatcher(peers, ManualClock().random)


def versions(pushes: list[AddressedPush]) -> list[list[int]]:
    return [[each.version for each in rumors] for _, rumors in pushes]


def test_rumor_after_a_pause_goes_at_once_and_the_next_waits() -> None:
    made = mailbag(A, B)
    for version, at in ((1, 7.0), (2, 7.001), (3, 7.002)):
        made.put(rumor(tx(version)), at, without=(ME,))
        assert versions(made.take(at)) == ([[1]] if version == 1 else [])
    assert made.due == 7.0 + NEAR_S
    assert versions(made.take(made.due)) == [[2, 3]]
    assert made.take(9.0) == [] and made.due == float("inf")


def test_far_regions_are_written_to_less_often() -> None:
    made = mailbag(A, far=(B,))
    for version in (1, 2):
        made.put(rumor(tx(version)), 1.0, without=(ME,))
        made.take(1.0)
    assert made.due == 1.0 + FAR_S


def test_a_copy_for_what_was_lost_goes_to_one_who_may_lack_it() -> None:
    made = mailbag(A, B, C)
    for version in (1, 2):
        made.put(rumor(tx(version), hop=1), 1.0, without=(ME, A))
    made.put(rumor(tx(1, origin=B), hop=1), 1.0, without=(ME, B))
    assert made.due == 1.0 + RELAY_S
    seen = {to for _ in range(1) for to, _ in made.take(made.due)}
    assert len(seen) == 1


def test_nobody_gets_what_it_knows() -> None:
    made = mailbag(A, B, far=(C,))
    made.put(rumor(tx(1)), 1.0, without=(ME, A, B))
    made.put(rumor(tx(2)), 1.0, without=(ME, A))
    made.put(rumor(tx(3)), 1.0, without=(ME, C))
    for to, rumors in made.take(1.0):
        known = {1: {A, B}, 2: {A}, 3: {C}}
        assert all(not known[each.version].intersection(to) for each in rumors)


def test_among_many_a_few_get_all_of_it() -> None:
    made = mailbag(*SPREAD)
    for version in range(1, 4):
        made.put(rumor(tx(version)), 1.0, without=(ME,))
    ((to, rumors),) = made.take(1.0)
    assert len(set(to)) == 6 and [each.version for each in rumors] == [1, 2, 3]


def test_letters_fit_a_datagram_and_what_is_long_goes_alone() -> None:
    made = mailbag(A)
    sizes = [300, 300, 300, 300, 5000, 300]
    for version, size in enumerate(sizes, 1):
        made.put(rumor(tx(version, op(state="x" * size, origin=ME), origin=ME)), 1.0, without=(ME,))
    pushes = made.take(1.0)
    assert versions(pushes) == [[1, 2], [3, 4], [5], [6]]
    short = [Push(scope=tx(1).scope, rumors=rumors) for _, rumors in pushes if len(rumors[0].body) < 1000]
    assert all(len(encode(push)) <= 1100 for push in short)
