import msgspec

from hawker.gossip.contract import Fate, NodeMeta
from hawker.gossip.effects import Forgot, MemberChanged
from hawker.gossip.failure_detector import Timing
from hawker.gossip.frames import ForgetNode, MemberClaim
from tests.gossip.single_core import BOOT, ME, SingleCore, claim, node, says


def test_a_suspect_that_does_not_refute_is_down() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    solo.hears(claim(3, Fate.SUSPECT, by=2))
    assert solo.fate(3) is Fate.SUSPECT
    solo.swim.membership.expire(solo.now + 3.9)
    assert solo.fate(3) is Fate.SUSPECT
    solo.swim.membership.expire(solo.now + 4)
    assert solo.fate(3) is Fate.DOWN


def test_a_suspect_that_refutes_lives() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    solo.hears(claim(3, Fate.SUSPECT, by=2))
    said = solo.hears(says(3, incarnation=2), sender=node(3))
    assert solo.fate(3) is Fate.ALIVE and not solo.swim.membership.suspects
    assert [event.member.fate for event in said.events if isinstance(event, MemberChanged)] == [Fate.ALIVE]
    solo.swim.membership.expire(solo.now + 1000)
    assert solo.fate(3) is Fate.ALIVE


def test_more_accusers_shorten_it_and_are_passed_on() -> None:
    solo = SingleCore()
    solo.knows(2, 3, 4, 5, 6)
    solo.hears(claim(6, Fate.SUSPECT, by=2))
    peer = solo.swim.membership.suspects[node(6)]
    assert peer.suspicion is not None and peer.suspicion.due == solo.now + 24
    solo.hears(claim(6, Fate.SUSPECT, by=2))
    assert peer.suspicion.confirmed == 0
    solo.hears(claim(6, Fate.SUSPECT, by=3), sender=node(3))
    solo.hears(claim(6, Fate.SUSPECT, by=4), sender=node(4))
    assert peer.suspicion.due == solo.now + 4
    news = [frame for _, frames in solo.passes(0.5).sends for frame in frames]
    assert {frame.by for frame in news if isinstance(frame, MemberClaim) and frame.node == node(6)} == {node(4)}


def test_claim_about_this_node_is_refuted() -> None:
    solo = SingleCore()
    solo.knows(2)
    for number, fate in ((1, Fate.SUSPECT), (5, Fate.DOWN), (9, Fate.LEFT)):
        solo.hears(claim(1, fate, incarnation=number, boot=BOOT))
        assert (solo.swim.me.incarnation, solo.swim.me.fate) == (number + 1, Fate.ALIVE)
    assert solo.swim.membership.health.score == 3


def test_claim_older_than_a_refutation_needs_none() -> None:
    solo = SingleCore()
    solo.hears(claim(1, Fate.SUSPECT, incarnation=5, boot=BOOT))
    solo.hears(claim(1, Fate.DOWN, incarnation=5, boot=BOOT))
    assert solo.swim.me.incarnation == 6


def test_claim_about_a_former_life_of_this_node_is_outdone() -> None:
    """The same node and address, another boot: this process began with a lower incarnation than it once had."""
    solo = SingleCore()
    said = solo.hears(claim(1, Fate.ALIVE, incarnation=7, boot=3))
    assert solo.swim.me.incarnation == 8 and not said.sends
    assert solo.swim.membership.health.score == 0


def test_own_claim_that_comes_back_changes_nothing() -> None:
    solo = SingleCore()
    solo.hears(solo.swim.me.claim(0))
    assert solo.swim.me.incarnation == 1


def test_the_greatest_incarnation_is_no_end() -> None:
    solo = SingleCore()
    solo.hears(claim(1, Fate.DOWN, incarnation=2**63 - 1, boot=BOOT))
    assert solo.swim.me.incarnation == 2**63 - 1


def test_a_lower_incarnation_changes_nothing() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.hears(says(3, incarnation=5), sender=node(2))
    solo.hears(says(3, incarnation=2, boot=33, address="x:1"), sender=node(2))
    peer = solo.swim.membership.members.get(node(3))
    assert peer is not None and (peer.incarnation, peer.boot, peer.address) == (5, 3, "3:1")


def test_member_that_is_down_for_two_days_is_removed() -> None:
    solo = SingleCore()
    solo.hears(claim(3, Fate.DOWN))
    day_s = 24 * 3600
    solo.swim.membership.clean(solo.now + 2 * day_s - 1)
    assert solo.fate(3) is Fate.DOWN
    solo.swim.membership.clean(solo.now + 2 * day_s + 1)
    assert solo.fate(3) is None
    solo.hears(msgspec.structs.replace(claim(3, Fate.DOWN), age_s=2 * day_s + 1))
    assert solo.fate(3) is None


def test_a_forgotten_node_is_gone_and_what_it_said_is_void() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    said = solo.hears(ForgetNode(node=node(3), fence=4))
    assert solo.fate(3) is None and said.events == (Forgot(node(3), 4),)
    solo.hears(says(3, epoch=4, incarnation=99), sender=node(2))
    assert solo.fate(3) is None
    assert not solo.hears(ForgetNode(node=node(3), fence=4)).events
    solo.hears(says(3, epoch=5, incarnation=1), sender=node(2))
    assert solo.fate(3) is Fate.ALIVE


def test_forgetting_a_former_epoch_keeps_the_newer_one() -> None:
    solo = SingleCore()
    solo.hears(says(3, epoch=6), sender=node(3))
    solo.hears(ForgetNode(node=node(3), fence=5))
    assert solo.fate(3) is Fate.ALIVE


def test_this_node_hears_that_it_was_forgotten_and_stays() -> None:
    solo = SingleCore()
    solo.knows(2)
    said = solo.hears(ForgetNode(node=ME, fence=1))
    assert Forgot(ME, 1) in said.events and solo.fate(1) is Fate.ALIVE


def test_forgetting_is_passed_on() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    solo.said(solo.swim.forget(node(3), 9, solo.now))
    assert ForgetNode(node=node(3), fence=9, at=1_700_000_000_000) in solo.passes(1).to("2:1")


def test_a_declaration_is_a_new_incarnation() -> None:
    solo = SingleCore()
    solo.knows(2)
    meta = NodeMeta(region="par", api="http://new")
    said = solo.said(solo.swim.declare(solo.now, epoch=7, meta=meta))
    me = solo.swim.me
    assert (me.incarnation, me.epoch, me.meta) == (2, 7, meta)
    assert [event.member.epoch for event in said.events if isinstance(event, MemberChanged)] == [7]
    told = [frame for frame in solo.passes(1).to("2:1") if isinstance(frame, MemberClaim) and frame.node == ME]
    assert told[0].epoch == 7 and told[0].meta == me.meta_fingerprint


def test_members_of_other_regions_have_longer() -> None:
    solo = SingleCore()
    solo.knows(2, 3, 4, 5)
    solo.swim.declare(solo.now, meta=NodeMeta(region="par", api="x"))
    solo.hears(claim(5, Fate.SUSPECT, by=2))
    peer = solo.swim.membership.suspects[node(5)]
    assert peer.suspicion is not None and peer.suspicion.due == solo.now + 36


def test_the_table_has_an_end() -> None:
    solo = SingleCore(Timing(members_most=5))
    for number in range(2, 50):
        solo.hears(says(number), sender=node(2))
    assert len(solo.swim.membership.members) == 5
