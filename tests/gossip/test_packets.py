import itertools

from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.gossip.contract import Fate
from hawker.gossip.failure_detector import Relay
from hawker.gossip.frames import Ack, MemberClaim, Nack, Note, Ping, Sync
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.members import MemberState
from hawker.gossip.packets import (
    OVERHEAD,
    PACKET_BYTES,
    PAYLOAD_BYTES,
    WINDOW_COUNTERS,
    Opener,
    ReplayWindow,
    Sealer,
    new_boot,
)
from hawker.ids import NodeId
from tests.gossip.single_core import ME, SingleCore, claim, node, says

NODE = NodeId("0000000a")
RING = new_keyring(ManualClock())


def sealer(ring: GossipKeyring = RING, node: NodeId = NODE, boot: int = 7, cluster: str = "c") -> Sealer:
    return Sealer(ring, node, boot, cluster)


def test_sealed_datagram_is_opened() -> None:
    opened = Opener(RING, "c").open(sealer().seal(b"hello"))
    assert opened is not None
    assert (opened.sender, opened.boot, opened.payload, opened.foreign) == (NODE, 7, b"hello", False)


def test_the_overhead_is_what_the_page_says() -> None:
    assert len(sealer().seal(b"")) == OVERHEAD == 48
    assert len(sealer().seal(bytes(PAYLOAD_BYTES))) == PACKET_BYTES


def test_nothing_is_opened_twice() -> None:
    opener, datagram = Opener(RING, "c"), sealer().seal(b"hello")
    assert opener.open(datagram) is not None
    assert opener.open(datagram) is None


def test_without_the_window_a_recording_would_be_believed() -> None:
    class Careless(ReplayWindow):
        def admits(self, counter: int) -> bool:
            return True

    opener, datagram = Opener(RING, "c", window=Careless), sealer().seal(b"hello")
    assert opener.open(datagram) is not None
    assert opener.open(datagram) is not None


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_bit_is_seen(at: int, flip: int) -> None:
    datagram = bytearray(sealer().seal(b"hello"))
    if at % len(datagram) == 3:
        at += 1  # the reserved byte is authenticated as well, but is no part of the comparison below
    datagram[at % len(datagram)] ^= flip
    assert Opener(RING, "c").open(bytes(datagram)) is None


def test_the_reserved_byte_is_authenticated() -> None:
    datagram = bytearray(sealer().seal(b"hello"))
    datagram[3] = 1
    assert Opener(RING, "c").open(bytes(datagram)) is None


@given(st.binary(max_size=1500))
def test_garbage_opens_nothing_and_is_not_remembered(garbage: bytes) -> None:
    opener = Opener(RING, "c")
    assert opener.open(garbage) is None
    assert opener.open(b"\xc1\0\1\0" + garbage) is None
    assert not opener._senders


def test_senders_without_the_key_take_no_memory() -> None:
    opener, stranger = Opener(RING, "c"), new_keyring(ManualClock(seed=9))
    for boot in range(50):
        assert opener.open(sealer(stranger, boot=boot).seal(b"hello")) is None
    assert not opener._senders


def test_only_so_many_senders_are_remembered() -> None:
    opener = Opener(RING, "c", senders=3)
    first = sealer(boot=0).seal(b"hello")
    for datagram in (first, *(sealer(boot=boot).seal(b"hello") for boot in range(1, 10))):
        assert opener.open(datagram) is not None
    assert len(opener._senders) == 3


def test_another_cluster_with_our_key_is_told_apart() -> None:
    opened = Opener(RING, "c").open(sealer(cluster="other").seal(b"hello"))
    assert opened is not None and opened.foreign


def test_a_rotation_is_never_deaf() -> None:
    """Each node does each step at another time; all understand each other all the while."""
    steps = [RING]
    steps.append(steps[-1].added(b"n" * 32))
    steps.append(steps[-1].using(2))
    steps.append(steps[-1].removed(1))
    for earlier, later in itertools.pairwise(steps):
        for ours, theirs in ((earlier, later), (later, earlier)):
            assert Opener(ours, "c").open(sealer(theirs).seal(b"hello")) is not None
    assert Opener(steps[3], "c").open(sealer(steps[0]).seal(b"hello")) is None


def test_a_changed_keyring_is_used_at_once() -> None:
    ours, opener = sealer(), Opener(RING, "c")
    assert opener.open(ours.seal(b"1")) is not None
    renewed = RING.added(b"n" * 32).using(2).removed(1)
    opener.use(renewed)
    assert opener.open(ours.seal(b"2")) is None
    ours.use(renewed)
    assert opener.open(ours.seal(b"3")) is not None


def test_a_counter_never_comes_back_with_a_key() -> None:
    """Else the same nonce would seal two datagrams under one key."""
    ours = sealer()
    two = RING.added(b"n" * 32)
    headers = set()
    for ring in (RING, two.using(2), two.using(2).using(1)):
        ours.use(ring)
        headers.add(ours.seal(b"x")[20:28])
    assert len(headers) == 3


def test_boots_differ_and_grow_with_time() -> None:
    clock = ManualClock()
    earlier, same_second = new_boot(clock), new_boot(clock)
    clock.advance(2)
    assert earlier != same_second and max(earlier, same_second) < new_boot(clock) < 2**63


def test_a_name_that_is_no_node_is_refused() -> None:
    assert Opener(RING, "c").open(sealer(node=NodeId("zzzzzzzz")).seal(b"hello")) is None


def test_a_counter_is_admitted_once() -> None:
    window = ReplayWindow()
    assert window.admits(5)
    window.add(5)
    assert not window.admits(5)
    assert window.admits(4) and window.admits(6)


def test_counter_older_than_the_window_is_refused() -> None:
    window = ReplayWindow()
    window.add(WINDOW_COUNTERS + 10)
    assert not window.admits(10)
    assert window.admits(11)


def test_a_leap_forgets_what_is_behind() -> None:
    window = ReplayWindow()
    for counter in (0, 1, 2**64 - 1):
        window.add(counter)
    assert not window.admits(1) and not window.admits(2**64 - 1)
    assert window.admits(2**64 - 2)


@given(st.lists(st.integers(0, 60), max_size=200), st.integers(1, 40))
def test_as_a_set_would_within_the_window(counters: list[int], size: int) -> None:
    window, seen, greatest = ReplayWindow(size), set[int](), -1
    for counter in counters:
        expected = counter > greatest - size and counter not in seen
        assert window.admits(counter) == expected
        if expected:
            window.add(counter)
            seen.add(counter)
            greatest = max(greatest, counter)


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
