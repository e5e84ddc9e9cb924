import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.gossip.contract import Fate, NodeMeta
from hawker.gossip.frames import MemberClaim
from hawker.gossip.members import MemberList, MemberState, content_of, fingerprint_of, shuffled
from tests.gossip.single_core import META, claim, node, says


def member_list(most: int = 100) -> MemberList:
    return MemberList(MemberState(says(1), 0), most, {})


def test_others_are_those_that_live() -> None:
    members = member_list()
    for number in (2, 3, 4):
        members.add(says(number), 0)
    peer = members.get(node(3))
    assert peer is not None
    members.change(peer, claim(3, Fate.DOWN), 0)
    assert [each.node for each in members.others] == [node(2), node(4)]
    assert (members.living, len(members)) == (3, 4)
    members.change(peer, says(3, incarnation=2), 0)
    assert members.living == 4


def test_a_number_too_large_has_no_room() -> None:
    members = member_list(most=3)
    assert members.add(says(2), 0) and members.add(says(3), 0)
    assert members.add(says(4), 0) is None and members.get(node(4)) is None
    for number in range(5):
        members.fence(node(number), 1)
    assert len(members.fences) == 3


@given(st.permutations([2, 3, 4, 5]), st.permutations([2, 3, 4, 5]))
def test_the_digest_knows_no_order(one: list[int], other: list[int]) -> None:
    left, right = member_list(), member_list()
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
    members = member_list()
    assert members.fence(node(2), 3) and not members.fence(node(2), 3) and not members.fence(node(2), 1)
    assert members.fence(node(2), 4)
    assert members.fenced(says(2, epoch=4)) and not members.fenced(says(2, epoch=5)) and not members.fenced(says(3))


def test_the_digest_of_fences_is_of_their_last() -> None:
    left, right = member_list(), member_list()
    left.fence(node(2), 1)
    left.fence(node(2), 7)
    right.fence(node(2), 7)
    assert left.digest == right.digest


def test_some_are_different_ones_and_never_those_left_out() -> None:
    members, clock = member_list(), ManualClock()
    for number in range(2, 12):
        members.add(says(number), 0)
    for _ in range(100):
        some = [peer.node for peer in members.some(3, clock.random, frozenset({node(5)}))]
        assert len(set(some)) == 3 and node(5) not in some and node(1) not in some
    assert len(members.some(50, clock.random)) == 10
    assert len(members.some(10, clock.random, frozenset({node(5)}))) == 9


def test_shuffled_has_the_same_ones() -> None:
    members = member_list()
    for number in range(2, 12):
        members.add(says(number), 0)
    mixed = shuffled(members.others, ManualClock().random)
    assert mixed != list(members.others) and set(mixed) == set(members.others)


@pytest.mark.parametrize(
    ("known", "said", "believed"),
    [
        ((Fate.ALIVE, 1), (Fate.ALIVE, 1), False),
        ((Fate.ALIVE, 1), (Fate.ALIVE, 2), True),
        ((Fate.ALIVE, 1), (Fate.SUSPECT, 1), True),
        ((Fate.ALIVE, 2), (Fate.SUSPECT, 1), False),
        ((Fate.SUSPECT, 1), (Fate.ALIVE, 1), False),
        ((Fate.SUSPECT, 1), (Fate.ALIVE, 2), True),
        ((Fate.SUSPECT, 1), (Fate.DOWN, 1), True),
        ((Fate.DOWN, 1), (Fate.ALIVE, 1), False),
        ((Fate.DOWN, 1), (Fate.ALIVE, 2), True),
        ((Fate.DOWN, 1), (Fate.SUSPECT, 1), False),
        ((Fate.DOWN, 1), (Fate.LEFT, 1), True),
        ((Fate.LEFT, 1), (Fate.DOWN, 1), False),
        ((Fate.LEFT, 1), (Fate.ALIVE, 2), True),
    ],
)
def test_the_newer_claim(known: tuple[Fate, int], said: tuple[Fate, int], believed: bool) -> None:
    peer = MemberState(claim(2, known[0], incarnation=known[1]), 0)
    assert peer.superseded_by(claim(2, said[0], incarnation=said[1])) == believed


def test_members_agree_in_whatever_order_claims_are_heard() -> None:
    claims = [claim(2, fate, incarnation=incarnation) for fate in Fate for incarnation in (1, 2)]
    for order in itertools.islice(itertools.permutations(claims), 0, 40320, 37):
        assert _after(list(order)) == (Fate.LEFT, 2)


def _after(claims: list[MemberClaim]) -> tuple[Fate, int]:
    peer = MemberState(claims[0], 0)
    for each in claims[1:]:
        if peer.superseded_by(each):
            peer.take(each, 0)
    return peer.fate, peer.incarnation


def test_since_is_when_its_fate_changed() -> None:
    peer = MemberState(says(2), 10)
    peer.take(says(2, incarnation=2), 20)
    assert peer.member().since == 10
    peer.take(claim(2, Fate.DOWN, incarnation=2), 30)
    assert peer.member().since == 30
    assert peer.claim(75).age_s == 45


def test_one_that_is_down_keeps_its_age_from_node_to_node() -> None:
    told = msgspec.structs.replace(claim(2, Fate.DOWN), age_s=100)
    assert MemberState(told, 1000).changed_at == 900


def test_meta_is_believed_by_its_fingerprint() -> None:
    peer = MemberState(says(2), 0)
    assert peer.lacks_meta and peer.member().meta is None
    assert not peer.learn(content_of(NodeMeta(region="par", api="http://forged")))
    assert peer.learn(content_of(META)) and not peer.learn(content_of(META))
    assert peer.member().meta == META and not peer.lacks_meta


def test_meta_of_a_newer_program_is_read() -> None:
    content = msgspec.msgpack.encode({"region": "mad", "api": "x", "of_the_future": 1})
    peer = MemberState(msgspec.structs.replace(says(2), meta=fingerprint_of(content)), 0)
    assert peer.learn(content) and peer.meta == NodeMeta(region="mad", api="x")


def test_meta_that_is_none_is_refused() -> None:
    peer = MemberState(msgspec.structs.replace(says(2), meta=fingerprint_of(b"\xc1")), 0)
    assert not peer.learn(b"\xc1") and peer.meta is None


def test_the_digest_is_of_what_all_agree_on() -> None:
    assert MemberState(says(2), 0).digest() == MemberState(says(2), 99).digest() != 0
    assert MemberState(claim(2, Fate.SUSPECT), 0).digest() == MemberState(says(2), 0).digest()
    assert MemberState(claim(2, Fate.DOWN), 0).digest() == 0
    for other in (says(2, incarnation=2), says(2, epoch=2), says(2, boot=9), says(2, address="x:1"), says(3)):
        assert MemberState(other, 0).digest() != MemberState(says(2), 0).digest()
