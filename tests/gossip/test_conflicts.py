from hawker.gossip.contract import Fate
from hawker.gossip.effects import Rejected, Troubled
from hawker.gossip.frames import Ack, Join, JoinRefused, MemberClaim, Ping
from tests.gossip.single_core import BOOT, ME, Said, SingleCore, node, says


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
