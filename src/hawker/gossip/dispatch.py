"""Dispatch of received frames: which answer, state change or event each one leads to. Has no timers.

`joining` is whether this node still waits to be let in; `rank` orders keyrings, so that two nodes see who is behind.
"""

from collections.abc import Callable
from typing import assert_never

from hawker.errors import BadRequest
from hawker.gossip.contract import Fate, Trouble
from hawker.gossip.effects import EffectBuffer, JoinAccepted, MessageReceived, Rejected, Rekeyed, Troubled
from hawker.gossip.failure_detector import ProbeRound, Relay, Relays, Timing
from hawker.gossip.frames import (
    Ack,
    ForgetNode,
    Frame,
    Join,
    JoinOk,
    JoinRefused,
    KeyringIs,
    MemberClaim,
    MetaIs,
    MetaReq,
    Nack,
    Note,
    Ping,
    PingReq,
    Sync,
    encode,
)
from hawker.gossip.keyring import GossipKeyring, checked, rank_of
from hawker.gossip.members import Identity, MemberState
from hawker.gossip.membership import Membership
from hawker.gossip.packets import Packets
from hawker.ids import NodeId
from hawker.value_object import ValueObject

_CHALLENGE_S = 1.0
_AGAIN_S = 60.0
_TOLD = 256


# Conflicts between nodes: two nodes with one id, a node of another cluster, clocks that differ. Told to the
# operator. Two nodes with one id are told apart by their boots. Only an answer to a fresh question proves that the
# other one lives, so a recording of a node's former life moves nobody. The newer of the two steps down.


class ConflictDetector:
    def __init__(
        self, me: MemberState, cluster: str, out: EffectBuffer, timing: Timing, next_seq: Callable[[], int]
    ) -> None:
        self._me, self._cluster, self._out, self._timing, self._next_seq = me, cluster, out, timing, next_seq
        self._asked: int | None = None
        self._challenge_at = -1e9
        self._told: dict[tuple[str, NodeId], float] = {}

    def foreign(self, sender: NodeId, address: str, now: float) -> None:
        text = f"this is a node of cluster {self._cluster}; check the address, or join it with its own token"
        self._out.send(address, encode(JoinRefused(code="cluster", text=text)))
        self._tell("cluster", sender, f"node {sender} at {address} of another cluster asked to join, with our key", now)

    def refuse(self, sender: NodeId, known: str, address: str, now: float) -> None:
        """Refuses a node that wants to join, because somebody of that name is here and well."""
        text = f"node id {sender} is in use at {known}; if that node is gone, it is let in once that one is down"
        self._out.send(address, encode(JoinRefused(code="twin", text=text)))
        self._tell("twin", sender, f"a second node with id {sender} at {address}, the first is at {known}", now)

    def heard(self, boot: int, address: str, frames: list[Frame], now: float) -> None:
        """Takes frames from somebody with this node's own id."""
        for frame in frames:
            if isinstance(frame, Join):
                self.refuse(self._me.node, self._me.address, address, now)
            elif isinstance(frame, Ping):
                self._out.send(address, encode(Ack(seq=frame.seq, of=self._me.node)))
            elif isinstance(frame, Ack) and frame.seq == self._asked:
                self._asked = None
                self._verdict(boot, address, now)
                return
        self.challenge(address, now)

    def challenge(self, address: str, now: float) -> None:
        """Ask whoever seems to have our id there."""
        if now < self._challenge_at:
            return
        self._challenge_at = now + _CHALLENGE_S
        self._asked = self._next_seq()
        self._out.send(address, encode(Ping(seq=self._asked, to=self._me.node)))

    def _verdict(self, boot: int, address: str, now: float) -> None:
        if boot < self._me.boot:
            text = f"node id {self._me.node} is in use at {address}, by a process that began earlier"
            self._out.tell(Rejected("twin", text))
        else:
            self._tell("twin", self._me.node, f"a second node with this node's id is at {address}", now)

    def clock(self, peer: MemberState, theirs: float, ours: float, now: float) -> None:
        """Compares what a peer says of the time with what we say."""
        if theirs <= 0:
            return
        peer.skew_s = theirs - ours
        if abs(peer.skew_s) > self._timing.skew_s:
            side = "ahead of" if peer.skew_s > 0 else "behind"
            text = f"the clock of {peer.node} is {abs(peer.skew_s):.0f} s {side} ours; one of the two is wrong"
            self._tell("skew", peer.node, text, now)

    def _tell(self, code: str, node: NodeId, text: str, now: float) -> None:
        """Each at most once a minute."""
        if now < self._told.get((code, node), -1e9):
            return
        self._told.pop((code, node), None)
        if len(self._told) >= _TOLD:
            del self._told[next(iter(self._told))]
        self._told[code, node] = now + _AGAIN_S
        self._out.tell(Troubled(Trouble(code=code, node=node, text=text)))


_32_BITS = (1 << 32) - 1
_SYNC_ANSWER_S = 0.5


class FrameSource(ValueObject, frozen=True):
    """The sender of a frame and the monotonic time at which it came. `peer` is the sender's state, None if unknown."""

    sender: NodeId
    boot: int
    """The number that says which life of the sender's process sent the frames."""
    address: str
    """HOST:PORT that it came from."""
    now: float
    """Seconds of this node's monotonic clock."""
    peer: MemberState | None

    @property
    def current(self) -> MemberState | None:
        """The sender, if it is the process that we know: not a former life, and no second node of that name."""
        return self.peer if self.peer is not None and self.peer.boot == self.boot else None


class FrameDispatcher:
    """Shares its parts with `Swim`, which has the timers. `joining` and `rank` are as the module says."""

    def __init__(
        self,
        identity: Identity,
        keyring: GossipKeyring,
        membership: Membership,
        packets: Packets,
        timing: Timing,
        out: EffectBuffer,
    ) -> None:
        self.cluster = identity.cluster
        self.joining = False
        self.rank = rank_of(keyring)
        self._keyring = keyring
        self.relays = Relays()
        self._membership, self._packets, self._timing, self._out = membership, packets, timing, out
        self._conflicts = ConflictDetector(membership.me, identity.cluster, out, timing, self.next_seq)
        self._seq = identity.boot & _32_BITS
        self._sync_at = self._sync_answer_at = -1e9

    def next_seq(self) -> int:
        self._seq = (self._seq + 1) & _32_BITS
        return self._seq

    # Who is no member like any other.

    def foreigner(self, sender: NodeId, address: str, frames: list[Frame], now: float) -> None:
        """A node of another cluster that has our key: it is told, if it wants to join; or it tells us."""
        for frame in frames:
            if isinstance(frame, Join):
                self._conflicts.foreign(sender, address, now)
            if isinstance(frame, JoinRefused) and self.joining:
                self._out.tell(Rejected(frame.code, frame.text))

    def twin(self, boot: int, address: str, frames: list[Frame], now: float) -> None:
        self._conflicts.heard(boot, address, frames, now)

    def challenge(self, address: str, now: float) -> None:
        self._conflicts.challenge(address, now)

    def joiner(self, sender: NodeId, address: str, frames: list[Frame], now: float) -> None:
        """Takes frames of somebody who wants to be let in. Unlike a claim that is passed on, this one is looked at
        closely."""
        claim = next((frame for frame in frames if isinstance(frame, MemberClaim) and frame.node == sender), None)
        if claim is None or self._membership.me.fate is Fate.LEFT:
            return
        known = self._membership.members.get(sender)
        before = known.claim(now) if known else None
        if self._membership.members.fenced(claim):
            self._tell_fence(sender, address)
        elif known and known.living and known.boot != claim.boot and known.address != claim.address:
            self._conflicts.refuse(sender, known.address, address, now)
        else:
            self._membership.hear(claim, now)
            self._packets.full_state(address, JoinOk(cluster=self.cluster, known=before), now=now)

    def claim(self, claim: MemberClaim, sender: NodeId, address: str, now: float) -> None:
        if claim.node == sender and self._membership.members.fenced(claim):
            self._tell_fence(sender, address)
            return
        self._membership.hear(claim, now)
        peer = self._membership.members.get(claim.node)
        if peer is not None and peer.living and peer.lacks_meta and peer.asks == 0:
            self.ask_meta(peer, peer.address)
            peer.asked_at, peer.asks = now + self._timing.upkeep_s, 1

    def _tell_fence(self, node: NodeId, address: str) -> None:
        fence = self._membership.members.fences[node]
        self._out.send(address, encode(ForgetNode(node=node, fence=fence, at=self._packets.wall_ms())))

    def ask_meta(self, peer: MemberState, address: str) -> None:
        self._packets.post(address, MetaReq(node=peer.node))

    def adopt(self, keyring: GossipKeyring) -> None:
        """A newer keyring is used at once and passed on."""
        if rank_of(keyring) <= self.rank:
            return
        self.rank, self._keyring = rank_of(keyring), keyring
        self._membership.broadcasts.put("keys", encode(_keys(keyring)))
        self._out.tell(Rekeyed(keyring))

    # Members.

    def answer(self, frame: Frame, heard: FrameSource, probe: ProbeRound | None) -> None:
        match frame:
            case Ping():
                self._ping(frame, heard)
            case Ack():
                self._ack(frame, heard, probe)
            case PingReq():
                self._ping_req(frame, heard)
            case Nack():
                if probe and probe.seq == frame.seq and heard.sender in probe.relays:
                    probe.nacks.add(heard.sender)
            case MetaReq():
                self._meta_req(frame, heard)
            case MetaIs():
                self._membership.learn(frame.node, frame.content)
            case JoinOk():
                self._let_in(frame, heard)
            case JoinRefused():
                if self.joining:
                    self._out.tell(Rejected(frame.code, frame.text))
            case ForgetNode():
                self._membership.forget(frame, heard.now)
            case KeyringIs():
                self._keys_heard(frame)
            case Sync():
                self._sync(frame, heard)
            case Note():
                if heard.current is not None:
                    self._out.tell(MessageReceived(heard.sender, frame.body))
            case MemberClaim() | Join():
                return  # dealt with before the members' own messages
            case _:
                assert_never(frame)

    def _ping(self, ping: Ping, heard: FrameSource) -> None:
        if ping.to != self._membership.me.node or self._membership.me.fate is Fate.LEFT:
            return
        current = heard.current is not None
        self._packets.ack(heard.address, ping.seq, self.rank, heard.peer, current=current)
        self._compare(ping, heard)

    def _ack(self, ack: Ack, heard: FrameSource, probe: ProbeRound | None) -> None:
        relay = self.relays.answered(ack.seq)
        if relay is not None:
            self._packets.post(relay.address, Ack(seq=relay.seq, of=ack.of, at=ack.at, view=ack.view, keys=ack.keys))
        elif probe and probe.seq == ack.seq and probe.answered(ack.of, heard.sender):
            probe.acked, probe.direct_at = True, float("inf")
            if heard.sender == ack.of and heard.current is not None:
                heard.current.round_trip.measured(max(1e-6, heard.now - probe.sent_at))
                self._conflicts.clock(heard.current, ack.at / 1000, self._packets.wall_ms() / 1000, heard.now)
        if heard.sender == ack.of:
            self._compare(ack, heard)

    def _compare(self, said: Ping | Ack, heard: FrameSource) -> None:
        """Whoever has an older keyring is given ours; who believes something else is told all, now and then."""
        peer = heard.current
        if peer is None:
            return
        peer.keys = said.keys
        if said.keys < self.rank:
            self._packets.post(heard.address, _keys(self._keyring))
        if (
            said.view != self._membership.members.digest
            and not self._membership.broadcasts
            and self._sync_at <= heard.now
        ):
            self._sync_at = heard.now + self._timing.sync_s
            self._packets.full_state(heard.address, Sync(want=True), *self._fences(), now=heard.now)

    def _fences(self) -> list[ForgetNode]:
        return [ForgetNode(node=node, fence=fence) for node, fence in self._membership.members.fences.items()]

    def _sync(self, sync: Sync, heard: FrameSource) -> None:
        if sync.want and self._sync_answer_at <= heard.now:
            self._sync_answer_at = heard.now + _SYNC_ANSWER_S
            self._packets.full_state(heard.address, Sync(want=False), *self._fences(), now=heard.now)

    def _ping_req(self, request: PingReq, heard: FrameSource) -> None:
        if heard.current is None:
            return
        seq = self.next_seq()
        nack_at = heard.now + self._timing.nack_after * self._timing.direct_s
        self.relays.add(seq, Relay(request.seq, heard.address, nack_at, heard.now + 2 * self._timing.probe_s))
        digest = self._membership.members.digest
        ping = Ping(seq=seq, to=request.to, at=self._packets.wall_ms(), view=digest, keys=self.rank)
        self._packets.post(request.address, ping)

    def _meta_req(self, request: MetaReq, heard: FrameSource) -> None:
        peer = self._membership.members.get(request.node)
        if peer is not None and peer.content and heard.current is not None:
            self._packets.post(heard.address, MetaIs(node=peer.node, content=peer.content))

    def _let_in(self, ok: JoinOk, heard: FrameSource) -> None:
        if not self.joining or ok.cluster != self.cluster:
            return
        self.joining = False
        if ok.known is not None and ok.known.node == self._membership.me.node:
            self._membership.hear(ok.known, heard.now)
        known = MemberState(ok.known, heard.now).member() if ok.known is not None else None
        self._out.tell(JoinAccepted(known))

    def _keys_heard(self, keys: KeyringIs) -> None:
        try:
            self.adopt(checked(GossipKeyring(keys=keys.keys, primary=keys.primary, version=keys.version)))
        except BadRequest:
            return  # what is no keyring changes nothing


def _keys(keyring: GossipKeyring) -> KeyringIs:
    return KeyringIs(version=keyring.version, primary=keyring.primary, keys=dict(keyring.keys))
