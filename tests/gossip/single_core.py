"""One core by itself: what it is told, and what it answers, as frames."""

from dataclasses import dataclass

from hawker.clock import ManualClock
from hawker.gossip.contract import Fate, NodeMeta
from hawker.gossip.effects import Effects, Event
from hawker.gossip.failure_detector import Timing
from hawker.gossip.frames import Frame, MemberClaim, decode, payload_of
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.members import Identity, alive_claim, content_of
from hawker.gossip.membership import Membership
from hawker.gossip.swim import Swim
from hawker.ids import NodeId

KEYRING = GossipKeyring(keys={1: bytes(32)}, primary=1)
ME, BOOT, WALL = NodeId("00000001"), 1000, 1.7e9
META = NodeMeta(region="mad", api="http://a:1")


@dataclass(frozen=True, slots=True)
class Said:
    """What one call led to: frames by address, and events."""

    sends: tuple[tuple[str, tuple[Frame, ...]], ...]
    events: tuple[Event, ...]

    def to(self, address: str) -> tuple[Frame, ...]:
        return tuple(frame for at, frames in self.sends if at == address for frame in frames)


class SingleCore:
    """Node 1 at `a:1`. Others are told of by `knows`: node n is at `n:1` with boot n."""

    def __init__(
        self, timing: Timing | None = None, membership: type[Membership] = Membership, *, boot: int = BOOT
    ) -> None:
        identity = Identity(node=ME, cluster="c", address="a:1", boot=boot, meta=META, epoch=1)
        self.now = 100.0
        self.swim = Swim(
            identity,
            KEYRING,
            now=self.now,
            chance=ManualClock().random,
            wall=lambda: WALL,
            timing=timing,
            membership=membership,
        )

    def said(self, outcome: Effects) -> Said:
        sends = tuple((send.address, tuple(decode(send.payload))) for send in outcome.sends)
        return Said(sends, tuple(outcome.events))

    def hears(
        self,
        *frames: Frame,
        sender: NodeId | None = None,
        boot: int | None = None,
        address: str | None = None,
        foreign: bool = False,
    ) -> Said:
        sender = sender or node(2)
        boot = int(sender, 16) if boot is None else boot
        address = address or f"{int(sender, 16)}:1"
        return self.said(self.swim.receive(sender, boot, address, payload_of(*frames), self.now, foreign))

    def knows(self, *numbers: int) -> None:
        """These are members, and their news is no news any more."""
        for number in numbers:
            self.hears(says(number), sender=node(number))
            peer = self.swim.membership.members.get(node(number))
            assert peer is not None
            self.swim.membership.learn(peer.node, content_of(META))
            self.swim.membership.broadcasts.drop(peer.node)
            self.swim.note(peer, b"")  # what was to be told of it is told
            self.swim.note(peer, b"")  # what was to be told of it is told

    def passes(self, seconds: float) -> Said:
        """Each moment that it wants to act at, one after the other."""
        end = self.now + seconds
        sends: list[tuple[str, tuple[Frame, ...]]] = []
        events: list[Event] = []
        while self.swim.next_at <= end:
            self.now = max(self.now, self.swim.next_at)
            said = self.said(self.swim.tick(self.now))
            sends += said.sends
            events += said.events
        self.now = end
        return Said(tuple(sends), tuple(events))

    def fate(self, number: int) -> Fate | None:
        peer = self.swim.membership.members.get(node(number))
        return peer.fate if peer else None


def node(number: int) -> NodeId:
    return NodeId(f"{number:08x}")


def says(
    number: int, *, incarnation: int = 1, epoch: int = 1, boot: int | None = None, address: str = ""
) -> MemberClaim:
    """What a node says of itself."""
    return alive_claim(
        node(number),
        address or f"{number}:1",
        boot=number if boot is None else boot,
        epoch=epoch,
        content=content_of(META),
        incarnation=incarnation,
    )


def claim(
    number: int, fate: Fate, *, incarnation: int = 1, by: int | None = None, boot: int | None = None
) -> MemberClaim:
    """What somebody says of a node."""
    told = says(number, incarnation=incarnation, boot=boot, address="a:1" if number == 1 else "")
    return MemberClaim(
        node=told.node,
        address=told.address,
        incarnation=told.incarnation,
        fate=fate,
        epoch=told.epoch,
        boot=told.boot,
        meta=told.meta,
        by="" if by is None else node(by),
    )
