from hawker.gossip.contract import Fate
from hawker.gossip.failure_detector import Relay
from hawker.gossip.frames import Ack, MemberClaim, Nack, Note, Ping, Sync
from hawker.gossip.members import MemberState
from hawker.gossip.sealing import PAYLOAD_BYTES
from tests.gossip.single_core import ME, SingleCore, claim, node, says


def peer_of(solo: SingleCore, number: int) -> MemberState:
    peer = solo.swim.membership.members.get(node(number))
    assert peer is not None
    return peer


def test_a_ping_says_who_asks_and_what_is_thought_of_the_asked() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.hears(claim(2, Fate.SUSPECT, by=3))
    solo.swim.membership.broadcasts.drop(node(2))
    solo.swim.packets.ping(peer_of(solo, 2), 9, 0)
    ping, own, reproach = solo.said(solo.swim._out.taken()).to("2:1")
    assert isinstance(ping, Ping) and (ping.seq, ping.to, ping.view) == (
        9,
        node(2),
        solo.swim.membership.members.digest,
    )
    assert isinstance(own, MemberClaim) and own.node == ME
    assert isinstance(reproach, MemberClaim) and (reproach.node, reproach.fate) == (node(2), Fate.SUSPECT)


def test_news_fills_what_is_left_and_no_more() -> None:
    solo = SingleCore()
    for number in range(2, 60):
        solo.hears(says(number), sender=node(2))
    outcome = solo.swim.note(peer_of(solo, 2), bytes(600))
    assert len(outcome.sends[0].payload) <= PAYLOAD_BYTES
    frames = solo.said(outcome).to("2:1")
    assert isinstance(frames[0], Note) and 4 < len(frames) < 10


def test_no_news_is_no_datagram() -> None:
    solo = SingleCore()
    solo.knows(2)
    solo.swim.packets.news(peer_of(solo, 2))
    assert not solo.swim._out.taken().sends


def test_everything_goes_in_as_many_datagrams_as_it_takes() -> None:
    solo = SingleCore()
    solo.knows(*range(2, 60))
    solo.swim.packets.full_state("2:1", Sync(want=True), now=solo.now)
    outcome = solo.swim._out.taken()
    assert len(outcome.sends) > 1 and all(len(send.payload) <= PAYLOAD_BYTES for send in outcome.sends)
    frames = solo.said(outcome).to("2:1")
    assert frames[0] == Sync(want=True)
    assert {frame.node for frame in frames if isinstance(frame, MemberClaim)} == {
        node(number) for number in range(1, 60)
    }


def test_an_ack_tells_a_stranger_who_answers() -> None:
    solo = SingleCore()
    solo.swim.packets.ack("9:1", 4, 0, None, current=False)
    ack, own = solo.said(solo.swim._out.taken()).to("9:1")
    assert isinstance(ack, Ack) and ack.of == ME and isinstance(own, MemberClaim)


def test_a_nack_goes_to_who_asked() -> None:
    solo = SingleCore()
    solo.swim.packets.nack(Relay(5, "3:1", 0, 0))
    assert solo.said(solo.swim._out.taken()).to("3:1") == (Nack(seq=5),)
