import pytest

from hawker.gossip.contract import Fate
from hawker.gossip.effects import FallbackPing, MemberChanged
from hawker.gossip.failure_detector import ProbeRound, Timing
from hawker.gossip.frames import Ack, Join, JoinOk, MalformedFrame, MemberClaim, Nack, Ping, PingReq
from tests.gossip.single_core import BOOT, ME, Said, SingleCore, claim, node, says


def begun(solo: SingleCore) -> ProbeRound:
    """Until the next question is asked."""
    before = solo.swim._probe
    while solo.swim._probe is before or solo.swim._probe is None:
        solo.passes(max(0.0, solo.swim.next_at - solo.now))
    return solo.swim._probe


def fates(said: Said, number: int) -> list[Fate]:
    members = [event.member for event in said.events if isinstance(event, MemberChanged)]
    return [member.fate for member in members if member.node == node(number)]


def test_a_member_that_answers_is_well() -> None:
    solo = SingleCore()
    solo.knows(2)
    for _ in range(5):
        probe = begun(solo)
        solo.now += 0.01
        solo.hears(Ack(seq=probe.seq, of=node(2)))
    assert solo.fate(2) is Fate.ALIVE and solo.swim.membership.health.score == 0
    peer = solo.swim.membership.members.get(node(2))
    assert peer is not None and peer.round_trip.seconds == pytest.approx(0.01)


def test_others_are_asked_before_anyone_is_suspected() -> None:
    solo = SingleCore()
    solo.knows(2, 3, 4, 5, 6)
    probe = begun(solo)
    said = solo.passes(0.31)
    asked = [at for at, sent in said.sends for frame in sent if isinstance(frame, PingReq)]
    assert len(set(asked)) == 3 and f"{int(probe.node, 16)}:1" not in asked
    assert FallbackPing(probe.node, f"{int(probe.node, 16)}:1", probe.seq) in said.events
    assert not solo.swim.membership.suspects


def test_an_answer_by_way_of_another_counts_but_not_for_the_round_trip() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    probe = begun(solo)
    other = node(2) if probe.node == node(3) else node(3)
    solo.hears(Ack(seq=probe.seq, of=probe.node), sender=other)
    assert not probe.acked
    solo.passes(0.31)
    solo.hears(Ack(seq=probe.seq, of=probe.node), sender=other)
    peer = solo.swim.membership.members.get(probe.node)
    assert probe.acked and peer is not None and peer.round_trip.seconds == 0


def test_an_answer_over_a_stream_counts() -> None:
    solo = SingleCore()
    solo.knows(2)
    probe = begun(solo)
    solo.passes(0.31)
    solo.swim.fallback_acked(probe.seq - 1, solo.now)
    assert not probe.acked
    solo.swim.fallback_acked(probe.seq, solo.now)
    solo.passes(1)
    assert solo.fate(2) is Fate.ALIVE


def test_silence_is_suspicion_then_down() -> None:
    solo = SingleCore()
    solo.knows(2)
    begun(solo)
    said = solo.passes(1.01)
    assert fates(said, 2) == [Fate.SUSPECT]
    told = [frame for frame in solo.passes(0.3).to("2:1") if isinstance(frame, MemberClaim) and frame.node == node(2)]
    assert told and all(frame.fate is Fate.SUSPECT and frame.by == ME for frame in told)
    assert fates(solo.passes(4), 2) == [Fate.DOWN]


def test_a_suspect_is_asked_once_more_before_it_is_down() -> None:
    """What it said against the suspicion may have been lost."""
    solo = SingleCore(Timing(probe_s=1.0))
    solo.knows(2, 3, 4)
    solo.hears(claim(4, Fate.SUSPECT, by=3))
    solo.swim._probe_at = float("inf")
    said = solo.passes(23.9)
    asked = [sent for at, sent in said.sends if at == "4:1" and isinstance(sent[0], Ping)]
    assert len(asked) == 3
    assert all(any(isinstance(frame, MemberClaim) and frame.fate is Fate.SUSPECT for frame in sent) for sent in asked)
    assert solo.fate(4) is Fate.SUSPECT


def test_silence_that_healthy_relays_confirm_is_not_our_fault() -> None:
    solo = SingleCore()
    solo.knows(2, 3, 4, 5)
    probe = begun(solo)
    solo.passes(0.31)
    for relay in probe.relays:
        solo.hears(Nack(seq=probe.seq), sender=relay)
    begun(solo)
    assert solo.swim.membership.health.score == 0 and solo.fate(int(probe.node, 16)) is Fate.SUSPECT


def test_silence_of_everybody_is_our_fault_first() -> None:
    solo = SingleCore()
    solo.knows(2, 3, 4, 5)
    begun(solo)
    periods = []
    for _ in range(4):
        before = solo.now
        begun(solo)
        periods.append(solo.now - before)
    assert periods == pytest.approx([1, 4, 7, 9], abs=0.05)


def test_one_that_stood_still_blames_nobody() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    solo.hears(claim(3, Fate.SUSPECT, by=2))
    begun(solo)
    solo.now += 60
    said = solo.said(solo.swim.tick(solo.now))
    assert not fates(said, 3) and not fates(said, 2) and solo.swim.membership.health.score == 8
    solo.hears(says(3, incarnation=2), sender=node(3))
    assert solo.fate(3) is Fate.ALIVE


def test_one_that_stood_still_and_first_reads_its_mail_blames_nobody_either() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    solo.hears(claim(3, Fate.SUSPECT, by=2))
    solo.now += 60
    solo.hears(says(2))
    assert solo.swim.membership.health.score == 8
    assert not fates(solo.said(solo.swim.tick(solo.now)), 3)


def test_a_suspicion_that_is_suddenly_over_is_no_stall() -> None:
    """Others confirm it when it has lasted for longer than so many accusers need."""
    solo = SingleCore()
    solo.knows(2, 3, 4, 5, 6)
    solo.hears(claim(6, Fate.SUSPECT, by=2))
    for _ in range(15):
        solo.passes(0.9)
        for number in (2, 3, 4, 5):
            solo.hears(says(number, incarnation=solo.swim.me.incarnation), sender=node(number))
    score = solo.swim.membership.health.score
    solo.hears(claim(6, Fate.SUSPECT, by=3), sender=node(3))
    solo.hears(claim(6, Fate.SUSPECT, by=4), sender=node(4))
    said = solo.passes(1.0)
    assert fates(said, 6) == [Fate.DOWN] and any(isinstance(frame, Ping) for frame in said.to("6:1"))
    assert solo.swim.membership.health.score <= score + 3  # of one question that nobody answered, not of a stall


def test_a_tick_that_is_little_late_is_no_stall() -> None:
    solo = SingleCore()
    solo.now = solo.swim.next_at + 0.9
    solo.swim.tick(solo.now)
    assert solo.swim.membership.health.score == 0


def test_seeds_are_asked_until_one_answers() -> None:
    solo = SingleCore()
    said = solo.said(solo.swim.join(["2:1", "a:1", "3:1", "4:1", "5:1"], solo.now))
    asked = [at for at, sent in said.sends for frame in sent if isinstance(frame, Join)]
    assert len(asked) == 3 and "a:1" not in asked
    assert len([at for at, sent in solo.passes(60).sends if isinstance(sent[0], Join)]) > 12
    solo.hears(JoinOk(cluster="c"), says(2))
    assert not [at for at, sent in solo.passes(3).sends if isinstance(sent[0], Join)]


def test_the_answer_of_another_cluster_lets_nobody_in() -> None:
    solo = SingleCore()
    solo.swim.join(["2:1"], solo.now)
    assert not solo.hears(JoinOk(cluster="other"), says(2)).events[1:]
    assert solo.swim.dispatcher.joining


def test_when_nobody_is_left_the_seeds_are_asked_again() -> None:
    solo = SingleCore()
    solo.swim.join(["2:1"], solo.now)
    solo.hears(JoinOk(cluster="c"), says(2))
    solo.hears(claim(2, Fate.DOWN), sender=node(3))
    said = solo.passes(10)
    assert [at for at, sent in said.sends if isinstance(sent[0], Join)]
    assert [at for at, sent in said.sends if isinstance(sent[0], Ping)] == ["2:1"] or solo.fate(2) is Fate.DOWN


def test_those_that_are_down_are_tried_now_and_then() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.hears(claim(3, Fate.DOWN))
    pings = [frame for frame in solo.passes(30).to("3:1") if isinstance(frame, Ping)]
    assert 3 <= len(pings) <= 12


def test_a_goodbye_is_told_and_kept() -> None:
    solo = SingleCore()
    solo.knows(2, 3)
    said = solo.said(solo.swim.leave(solo.now))
    for address in ("2:1", "3:1"):
        (told,) = {frame for frame in said.to(address) if isinstance(frame, MemberClaim) and frame.node == ME}
        assert told.fate is Fate.LEFT and told.incarnation == 2
    solo.hears(claim(1, Fate.DOWN, incarnation=7, boot=BOOT))
    assert solo.swim.me.fate is Fate.LEFT
    assert not [frame for frame in solo.passes(30).to("2:1") if isinstance(frame, Ping)]


def test_unreadable_datagram_changes_nothing() -> None:
    solo = SingleCore()
    solo.knows(2)
    with pytest.raises(MalformedFrame):
        solo.swim.receive(node(2), 2, "2:1", b"\x05\xff", solo.now, False)
    assert solo.swim.membership.members.living == 2


def test_news_that_comes_together_goes_together_and_then_stops() -> None:
    solo = SingleCore(Timing(probe_s=1000))
    solo.knows(2)
    solo.now += 0.01
    solo.hears(claim(3, Fate.DOWN), claim(4, Fate.DOWN))
    said = solo.passes(10)
    told = [[frame.node for frame in sent if isinstance(frame, MemberClaim)] for at, sent in said.sends if at == "2:1"]
    news = [nodes for nodes in told if node(3) in nodes]
    assert len(news) == 4 and all(node(4) in nodes for nodes in news)
