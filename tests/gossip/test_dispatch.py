import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.gossip.contract import Fate, NodeMeta, Trouble
from hawker.gossip.effects import JoinAccepted, MemberChanged, MessageReceived, Rejected, Rekeyed, Troubled
from hawker.gossip.failure_detector import Timing
from hawker.gossip.frames import (
    Ack,
    ForgetNode,
    Frame,
    Join,
    JoinOk,
    JoinRefused,
    KeyringIs,
    MalformedFrame,
    MemberClaim,
    MetaIs,
    MetaReq,
    Nack,
    Note,
    Ping,
    PingReq,
    Sync,
    payload_of,
)
from hawker.gossip.members import content_of, fingerprint_of
from tests.gossip.single_core import BOOT, KEYRING, ME, META, WALL, Said, SingleCore, claim, node, says
from tests.gossip.test_frames import frames


def of(kind: type, said: tuple[Frame, ...]) -> list[Frame]:
    return [frame for frame in said if isinstance(frame, kind)]


# Questions.


def test_a_ping_is_answered_to_where_it_came_from() -> None:
    solo = SingleCore()
    solo.knows(2)
    (ack,) = of(Ack, solo.hears(Ping(seq=7, to=ME), address="elsewhere:1").to("elsewhere:1"))
    assert isinstance(ack, Ack) and (ack.seq, ack.of, ack.view) == (7, ME, solo.swim.membership.members.digest)


def test_a_ping_for_somebody_else_is_not_answered() -> None:
    solo = SingleCore()
    solo.knows(2)
    assert not solo.hears(Ping(seq=7, to=node(9))).sends


def test_a_stranger_that_pings_is_told_who_answers() -> None:
    solo = SingleCore()
    said = solo.hears(Ping(seq=7, to=ME), says(2)).to("2:1")
    assert of(Ack, said) and solo.fate(2) is Fate.ALIVE
    assert of(MemberClaim, SingleCore().hears(Ping(seq=7, to=ME)).to("2:1"))


def test_one_that_is_believed_down_hears_it_when_it_asks() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.hears(claim(2, Fate.DOWN), sender=node(3))
    said = solo.hears(Ping(seq=7, to=ME), says(2)).to("2:1")
    assert Fate.DOWN in {frame.fate for frame in said if isinstance(frame, MemberClaim) and frame.node == node(2)}


def test_a_process_that_restarted_hears_what_its_former_life_had_said() -> None:
    solo = SingleCore()
    solo.hears(says(2, incarnation=9, boot=2), sender=node(2))
    said = solo.hears(Ping(seq=7, to=ME), says(2, incarnation=1, boot=5), boot=5).to("2:1")
    told = [frame for frame in said if isinstance(frame, MemberClaim) and frame.node == node(2)]
    assert {(frame.incarnation, frame.boot) for frame in told} == {(9, 2)}


def test_a_question_for_another_is_passed_on_and_so_is_its_answer() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    (ping,) = of(Ping, solo.hears(PingReq(seq=5, to=node(3), address="3:1")).to("3:1"))
    assert isinstance(ping, Ping) and ping.to == node(3)
    said = solo.hears(Ack(seq=ping.seq, of=node(3)), sender=node(3)).to("2:1")
    assert of(Ack, said) == [Ack(seq=5, of=node(3))]


def test_silence_is_told_to_who_asked() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    solo.hears(PingReq(seq=5, to=node(3), address="3:1"))
    assert of(Nack, solo.passes(0.3).to("2:1")) == [Nack(seq=5)]


def test_strangers_may_not_have_others_asked() -> None:
    assert not SingleCore().hears(PingReq(seq=5, to=node(3), address="3:1")).sends


# Joining.


def test_a_newcomer_is_let_in_and_told_all() -> None:
    solo = SingleCore()
    solo.knows(3)
    said = solo.hears(Join(cluster="c"), says(2))
    assert of(JoinOk, said.to("2:1")) == [JoinOk(cluster="c", known=None)]
    assert {frame.node for frame in said.to("2:1") if isinstance(frame, MemberClaim)} == {ME, node(2), node(3)}
    assert solo.fate(2) is Fate.ALIVE


def test_one_that_comes_back_is_told_what_was_believed_of_it() -> None:
    solo = SingleCore()
    solo.hears(says(2, incarnation=9, epoch=4), sender=node(2))
    (ok,) = of(JoinOk, solo.hears(Join(cluster="c"), says(2, boot=5), boot=5).to("2:1"))
    assert isinstance(ok, JoinOk) and ok.known is not None and (ok.known.incarnation, ok.known.epoch) == (9, 4)


def test_joined_node_goes_on_from_the_incarnation_it_had_before() -> None:
    solo = SingleCore()
    solo.swim.join(["2:1"], solo.now)
    known = claim(1, Fate.DOWN, incarnation=9, boot=3)
    said = solo.hears(JoinOk(cluster="c", known=known), says(2))
    (joined,) = [event for event in said.events if isinstance(event, JoinAccepted)]
    assert joined.known is not None and joined.known.incarnation == 9
    assert solo.swim.me.incarnation == 10 and solo.fate(2) is Fate.ALIVE


def test_a_second_node_with_one_id_is_refused_while_the_first_lives() -> None:
    solo = SingleCore()
    solo.knows(2)
    said = solo.hears(Join(cluster="c"), says(2, boot=5, address="x:1"), boot=5, address="x:1")
    (refused,) = of(JoinRefused, said.to("x:1"))
    assert isinstance(refused, JoinRefused) and refused.code == "twin" and "2:1" in refused.text
    assert [event.trouble.code for event in said.events if isinstance(event, Troubled)] == ["twin"]
    peer = solo.swim.membership.members.get(node(2))
    assert peer is not None and peer.boot == 2
    solo.hears(claim(2, Fate.DOWN), sender=node(3))
    assert of(JoinOk, solo.hears(Join(cluster="c"), says(2, boot=5, address="x:1"), boot=5, address="x:1").to("x:1"))


def test_the_same_address_with_another_boot_is_a_restart() -> None:
    solo = SingleCore()
    solo.knows(2)
    assert of(JoinOk, solo.hears(Join(cluster="c"), says(2, boot=5, incarnation=2), boot=5).to("2:1"))
    peer = solo.swim.membership.members.get(node(2))
    assert peer is not None and peer.boot == 5


def test_a_forgotten_node_hears_why_and_comes_back_with_a_newer_epoch() -> None:
    solo = SingleCore()
    solo.hears(ForgetNode(node=node(2), fence=3), sender=node(3))
    for frames_of_it in ((Join(cluster="c"), says(2, epoch=3)), (Ping(seq=1, to=ME), says(2, epoch=3))):
        forget = of(ForgetNode, solo.hears(*frames_of_it).to("2:1"))[0]
        assert isinstance(forget, ForgetNode) and (forget.node, forget.fence) == (node(2), 3)
    assert solo.fate(2) is None
    assert of(JoinOk, solo.hears(Join(cluster="c"), says(2, epoch=4)).to("2:1"))


def test_another_cluster_is_refused_and_told() -> None:
    solo = SingleCore()
    said = solo.hears(Join(cluster="other"), says(2), foreign=True)
    (refused,) = of(JoinRefused, said.to("2:1"))
    assert isinstance(refused, JoinRefused) and refused.code == "cluster"
    assert [event.trouble.code for event in said.events if isinstance(event, Troubled)] == ["cluster"]
    assert solo.fate(2) is None


@pytest.mark.parametrize("frame", [Ping(seq=1, to=ME), says(2), ForgetNode(node=node(3), fence=9), Note(body=b"x")])
def test_nothing_else_of_another_cluster_counts(frame: Frame) -> None:
    solo = SingleCore()
    solo.knows(3)
    said = solo.hears(frame, sender=node(2), foreign=True)
    assert not said.sends and not said.events and solo.fate(2) is None and solo.fate(3) is Fate.ALIVE


def test_a_refusal_counts_only_for_who_asked() -> None:
    solo = SingleCore()
    refused = JoinRefused(code="cluster", text="no")
    assert not solo.hears(refused).events and not solo.hears(refused, foreign=True).events
    solo.swim.join(["2:1"], solo.now)
    assert solo.hears(refused, foreign=True).events == (Rejected("cluster", "no"),)
    assert solo.hears(refused).events == (Rejected("cluster", "no"),)


def test_a_join_without_a_claim_is_nothing() -> None:
    assert not SingleCore().hears(Join(cluster="c")).sends


# Meta.


def test_a_new_meta_is_asked_for_and_believed() -> None:
    solo = SingleCore()
    assert of(MetaReq, solo.hears(says(2)).to("2:1")) == [MetaReq(node=node(2))]
    said = solo.hears(MetaIs(node=node(2), content=content_of(META)), sender=node(3))
    assert [event.member.meta for event in said.events if isinstance(event, MemberChanged)] == [META]
    assert not solo.hears(says(2)).sends and not solo.swim.membership.without_meta


def test_a_meta_that_was_not_claimed_is_not_believed() -> None:
    solo = SingleCore()
    solo.hears(says(2))
    solo.hears(MetaIs(node=node(2), content=content_of(NodeMeta(region="forged", api="x"))))
    solo.hears(MetaIs(node=node(9), content=content_of(META)))
    assert list(solo.swim.membership.without_meta) == [node(2)]


def test_meta_is_asked_for_again_also_of_other_members() -> None:
    solo = SingleCore()
    solo.knows(3)
    solo.hears(says(2))
    said = solo.passes(20)
    asked = [at for at, sent in said.sends for frame in sent if isinstance(frame, MetaReq)]
    assert set(asked) == {"2:1", "3:1"} and len(asked) < 12


def test_member_that_knows_a_meta_tells_it() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    for number in (1, 3):
        (told,) = of(MetaIs, solo.hears(MetaReq(node=node(number))).to("2:1"))
        assert isinstance(told, MetaIs) and fingerprint_of(told.content) == says(number).meta
    assert not of(MetaIs, solo.hears(MetaReq(node=node(9))).to("2:1"))


# Keys.


def renewed() -> KeyringIs:
    ring = KEYRING.added(b"n" * 32)
    return KeyringIs(version=ring.version, primary=ring.primary, keys=dict(ring.keys))


def test_a_newer_keyring_is_taken_and_passed_on() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    said = solo.hears(renewed())
    assert [event.keyring.version for event in said.events if isinstance(event, Rekeyed)] == [2]
    assert renewed() in [frame for _, sent in solo.passes(1).sends for frame in sent]
    assert not solo.hears(renewed()).events


def test_an_older_or_a_broken_keyring_changes_nothing() -> None:
    solo = SingleCore()
    solo.hears(renewed())
    broken = msgspec.structs.replace(renewed(), version=9, primary=77)
    for keys in (KeyringIs(version=1, primary=1, keys={1: bytes(32)}), broken):
        assert not solo.hears(keys).events


def test_member_with_an_older_keyring_is_given_the_newer_one() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.hears(renewed())
    solo.swim.membership.broadcasts.drop("keys")
    assert of(KeyringIs, solo.hears(Ping(seq=1, to=ME, keys=1)).to("2:1")) == [renewed()]
    assert not of(KeyringIs, solo.hears(Ping(seq=2, to=ME, keys=solo.swim.dispatcher.rank)).to("2:1"))


# All that is believed.


def test_member_with_another_digest_gets_a_full_sync_now_and_then() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    said = solo.hears(Ping(seq=1, to=ME, view=1, keys=2**63 - 1)).to("2:1")
    assert of(Sync, said) == [Sync(want=True)] and len(of(MemberClaim, said)) == 3
    assert not of(Sync, solo.hears(Ping(seq=2, to=ME, view=1)).to("2:1"))
    solo.now += 10
    assert of(Sync, solo.hears(Ping(seq=3, to=ME, view=1)).to("2:1"))
    solo.now += 10
    assert not of(Sync, solo.hears(Ping(seq=4, to=ME, view=solo.swim.membership.members.digest)).to("2:1"))


def test_full_sync_has_all_fences() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.hears(ForgetNode(node=node(7), fence=3))
    said = solo.hears(Sync(want=True)).to("2:1")
    assert of(Sync, said) == [Sync(want=False)] and of(ForgetNode, said) == [ForgetNode(node=node(7), fence=3)]
    assert not solo.hears(Sync(want=True)).sends
    solo.now += 1
    assert not of(Sync, solo.hears(Sync(want=False)).to("2:1"))


# Messages.


def test_a_message_of_a_member_is_heard() -> None:
    solo = SingleCore()
    solo.knows(2)
    assert solo.hears(Note(body=b"hello")).events == (MessageReceived(node(2), b"hello"),)


def test_messages_of_strangers_and_of_former_lives_are_not() -> None:
    solo = SingleCore()
    assert not solo.hears(Note(body=b"hello")).events
    solo.knows(2)
    assert not solo.hears(Note(body=b"hello"), boot=99).events


def test_one_that_left_answers_no_more() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.swim.leave(solo.now)
    assert not of(Ack, solo.hears(Ping(seq=1, to=ME)).to("2:1"))
    assert not solo.hears(Join(cluster="c"), says(9), sender=node(9)).to("9:1")


def test_clocks_are_compared() -> None:
    solo = SingleCore()
    solo.knows(2)
    for ahead_s, troubles in ((0, 0), (59, 0), (3600, 1), (3600, 0), (-3600, 0)):
        solo.passes(0.99)
        probe = solo.swim._probe
        assert probe is not None
        at = int((WALL + ahead_s) * 1000)
        said = solo.hears(Ack(seq=probe.seq, of=node(2), at=at))
        told = [event.trouble for event in said.events if isinstance(event, Troubled)]
        assert [trouble.code for trouble in told] == ["skew"] * troubles
        assert round(next(each for each in solo.swim.members() if each.node == node(2)).skew_s) == ahead_s
        if told:
            assert told[0] == Trouble(code="skew", node=node(2), text=told[0].text) and "3600 s ahead" in told[0].text


# Whatever comes.


@given(
    st.lists(
        st.tuples(st.lists(frames, min_size=1, max_size=4), st.integers(1, 5), st.integers(0, 9), st.booleans()),
        max_size=12,
    )
)
def test_no_sequence_of_frames_breaks_a_node(script: list[tuple[list[Frame], int, int, bool]]) -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    for heard, sender, boot, foreign in script:
        solo.hears(*heard, sender=node(sender), boot=boot, foreign=foreign)
        solo.passes(0.3)
    assert solo.fate(1) is Fate.ALIVE and len(solo.swim.membership.members) < 100


@given(st.binary(max_size=1200), st.integers(1, 4))
def test_no_bytes_break_a_node(payload: bytes, sender: int) -> None:
    solo = SingleCore()
    solo.knows(2)
    try:
        solo.swim.receive(node(sender), sender, "2:1", payload, solo.now, False)
    except MalformedFrame:
        assert solo.swim.membership.members.living == 2


@given(st.lists(frames, min_size=1, max_size=4), st.integers(0, 5000), st.integers(1, 255))
def test_no_damaged_frame_breaks_a_node(heard: list[Frame], at: int, flip: int) -> None:
    payload = bytearray(payload_of(*heard))
    payload[at % len(payload)] ^= flip
    solo = SingleCore()
    solo.knows(2)
    try:
        solo.swim.receive(node(2), 2, "2:1", bytes(payload), solo.now, False)
    except MalformedFrame:
        assert solo.swim.membership.members.living == 2


def test_a_flood_of_names_ends_at_the_tables_bounds() -> None:
    solo = SingleCore(Timing(members_most=500))
    for number in range(2, 2_000):
        solo.hears(says(number), ForgetNode(node=node(number + 20_000), fence=1), sender=node(2))
    assert len(solo.swim.membership.members) <= 500 and len(solo.swim.membership.members.fences) <= 500
    assert len(solo.swim.membership.broadcasts) <= 1_001


def challenge_in(said: Said, address: str) -> Ping:
    (ping,) = [frame for frame in said.to(address) if isinstance(frame, Ping)]
    assert ping.to == ME
    return ping


def heard_of_twin(solo: SingleCore, boot: int) -> Ping:
    """Somebody says that this node is at another address, in another process."""
    return challenge_in(solo.hears(says(1, boot=boot, address="x:1", incarnation=5)), "x:1")


def test_the_newer_of_two_steps_down() -> None:
    solo = SingleCore()
    ping = heard_of_twin(solo, boot=BOOT - 1)
    said = solo.hears(Ack(seq=ping.seq, of=ME), sender=ME, boot=BOOT - 1, address="x:1")
    (rejected,) = said.events
    assert isinstance(rejected, Rejected) and rejected.code == "twin" and "x:1" in rejected.text


def test_the_older_of_two_stays_and_tells() -> None:
    solo = SingleCore()
    ping = heard_of_twin(solo, boot=BOOT + 1)
    assert solo.swim.me.incarnation == 6
    said = solo.hears(Ack(seq=ping.seq, of=ME), sender=ME, boot=BOOT + 1, address="x:1")
    assert [event.trouble.code for event in said.events if isinstance(event, Troubled)] == ["twin"]
    assert solo.fate(1) is Fate.ALIVE


def test_a_recording_of_a_former_life_moves_nobody() -> None:
    solo = SingleCore()
    for frame in (Ack(seq=1, of=ME), says(1, boot=BOOT - 1), Ack(seq=2, of=ME)):
        said = solo.hears(frame, sender=ME, boot=BOOT - 1, address="x:1")
        assert not said.events


def test_a_claim_of_a_twin_that_nobody_answers_for_moves_nobody() -> None:
    solo = SingleCore()
    heard_of_twin(solo, boot=BOOT - 1)
    assert not [event for event in solo.passes(30).events if isinstance(event, Rejected)]


def test_twins_are_asked_once_a_second_at_most() -> None:
    solo = SingleCore()
    asked = 0
    for _ in range(100):
        said = solo.hears(says(1, boot=9, address="x:1", incarnation=solo.swim.me.incarnation))
        asked += sum(isinstance(frame, Ping) for frame in said.to("x:1"))
        solo.now += 0.1
    assert 9 <= asked <= 11


def test_a_twin_that_asks_is_answered_and_asked() -> None:
    solo = SingleCore()
    said = solo.hears(Ping(seq=3, to=ME), sender=ME, boot=BOOT + 1, address="x:1").to("x:1")
    assert Ack(seq=3, of=ME) in said and any(isinstance(frame, Ping) for frame in said)
    assert not [frame for frame in said if isinstance(frame, MemberClaim)]


def test_a_twin_that_wants_to_join_is_refused_by_the_first() -> None:
    said = SingleCore().hears(Join(cluster="c"), says(1, boot=5), sender=ME, boot=5, address="x:1")
    assert [frame.code for frame in said.to("x:1") if isinstance(frame, JoinRefused)] == ["twin"]
    assert [event.trouble.code for event in said.events if isinstance(event, Troubled)] == ["twin"]


def test_an_echo_of_this_process_is_nothing() -> None:
    solo = SingleCore()
    said = solo.hears(Ping(seq=3, to=ME), Join(cluster="c"), sender=ME, boot=BOOT, address="x:1")
    assert not said.sends and not said.events


def test_trouble_is_told_once_a_minute_and_the_memory_for_it_is_bounded() -> None:
    solo = SingleCore()
    told = 0
    for _ in range(3):
        said = solo.hears(Join(cluster="d"), says(2), foreign=True)
        told += sum(isinstance(event, Troubled) for event in said.events)
        solo.now += 31
    assert told == 2
    for number in range(2, 2000):
        solo.hears(Join(cluster="d"), says(number), sender=node(number), foreign=True)
    assert len(solo.swim.dispatcher._conflicts._told) <= 256
