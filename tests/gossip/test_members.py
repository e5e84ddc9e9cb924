from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.gossip.contract import Fate
from hawker.gossip.members import Roster, shuffled
from hawker.gossip.peer import Peer
from tests.gossip.solo import claim, node, says


def roster(most: int = 100) -> Roster:
    return Roster(Peer(says(1), 0), most, {})


def test_others_are_those_that_live() -> None:
    members = roster()
    for number in (2, 3, 4):
        members.add(says(number), 0)
    peer = members.get(node(3))
    assert peer is not None
    members.change(peer, claim(3, Fate.DOWN), 0)
    assert [each.node for each in members.others] == [node(2), node(4)]
    assert (members.living, len(members)) == (3, 4)
    members.change(peer, says(3, incarnation=2), 0)
    assert members.living == 4


def test_there_is_no_room_for_any_number() -> None:
    members = roster(most=3)
    assert members.add(says(2), 0) and members.add(says(3), 0)
    assert members.add(says(4), 0) is None and members.get(node(4)) is None
    for number in range(5):
        members.fence(node(number), 1)
    assert len(members.fences) == 3


@given(st.permutations([2, 3, 4, 5]), st.permutations([2, 3, 4, 5]))
def test_the_digest_knows_no_order(one: list[int], other: list[int]) -> None:
    left, right = roster(), roster()
    for members, numbers in ((left, one), (right, other)):
        for number in numbers:
            members.add(says(number), 0)
            members.fence(node(number + 10), number)
    assert left.digest == right.digest
    gone = right.get(node(4))
    assert gone is not None
    right.remove(gone)
    assert left.digest != right.digest
    right.add(says(4), 5)
    assert left.digest == right.digest


def test_a_fence_only_rises() -> None:
    members = roster()
    assert members.fence(node(2), 3) and not members.fence(node(2), 3) and not members.fence(node(2), 1)
    assert members.fence(node(2), 4)
    assert members.fenced(says(2, epoch=4)) and not members.fenced(says(2, epoch=5)) and not members.fenced(says(3))


def test_the_digest_of_fences_is_of_their_last() -> None:
    left, right = roster(), roster()
    left.fence(node(2), 1)
    left.fence(node(2), 7)
    right.fence(node(2), 7)
    assert left.digest == right.digest


def test_some_are_different_ones_and_never_those_left_out() -> None:
    members, clock = roster(), ManualClock()
    for number in range(2, 12):
        members.add(says(number), 0)
    for _ in range(100):
        some = [peer.node for peer in members.some(3, clock.random, frozenset({node(5)}))]
        assert len(set(some)) == 3 and node(5) not in some and node(1) not in some
    assert len(members.some(50, clock.random)) == 10
    assert len(members.some(10, clock.random, frozenset({node(5)}))) == 9


def test_shuffled_has_the_same_ones() -> None:
    members = roster()
    for number in range(2, 12):
        members.add(says(number), 0)
    mixed = shuffled(members.others, ManualClock().random)
    assert mixed != list(members.others) and set(mixed) == set(members.others)
