from hawker.catalog.fan_out import ReplicaPeer, ReplicaPeers
from hawker.catalog.messages import Push, encode
from hawker.catalog.push_batch import FAR_S, NEAR_S, RELAY_S, AddressedPush, PushBatcher
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import ME, A, B, C, op, rumor, tx

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
