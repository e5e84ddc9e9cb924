"""Membership: what this node believes of all members, itself included, and how claims change it. Sends nothing.

Claims are weighed by a total order (incarnation, then fate), so all nodes come to believe the same. Only a member
itself raises its incarnation: to refute what is said of it, or to say something new.
"""

from collections.abc import Callable, Mapping

from hawker.gossip.broadcasts import BroadcastQueue
from hawker.gossip.contract import Fate, NodeMeta
from hawker.gossip.effects import EffectBuffer, Forgot, MemberChanged
from hawker.gossip.failure_detector import LocalHealth, Suspicion, Timing
from hawker.gossip.frames import ForgetNode, MemberClaim, encode
from hawker.gossip.members import MemberList, MemberState, ProbeOrder, content_of, fingerprint_of
from hawker.ids import NodeId


class Membership:
    """The member list and what hangs on it. `suspects` are members with an open suspicion, `without_meta` those whose
    meta was not received yet. `twin_at` is an address where another node seems to have this node's id, None for none;
    the caller that asks there resets it. `chance` is uniform in [0, 1)."""

    def __init__(
        self,
        me: MemberState,
        *,
        timing: Timing,
        chance: Callable[[], float],
        fences: Mapping[NodeId, int],
        broadcasts: BroadcastQueue,
        out: EffectBuffer,
    ) -> None:
        self.me = me
        self.members = MemberList(me, timing.members_most, fences)
        self.broadcasts = broadcasts
        self.order = ProbeOrder(chance)
        self.health = LocalHealth(timing.health_most)
        self.suspects: dict[NodeId, MemberState] = {}
        self.without_meta: dict[NodeId, MemberState] = {}
        self.twin_at: str | None = None
        self._timing = timing
        self._out = out

    def hear(self, claim: MemberClaim, now: float) -> None:
        """Weigh a claim; believe it and pass it on if it is newer than what is believed."""
        if claim.node == self.me.node:
            self._hear_of_me(claim, now)
            return
        if self.members.fenced(claim):
            return
        peer = self.members.get(claim.node)
        if peer is None:
            self._hear_of_new(claim, now)
        elif peer.superseded_by(claim):
            before = (peer.fate, peer.address, peer.epoch, peer.meta_fingerprint)
            self.members.change(peer, claim, now)
            after = (peer.fate, peer.address, peer.epoch, peer.meta_fingerprint)
            self._believed(peer, claim, now, news=before != after)
        elif peer.suspicion is not None and claim.fate is Fate.SUSPECT and claim.incarnation == peer.incarnation:
            self._confirmed(peer, peer.suspicion, claim, now)

    def _hear_of_new(self, claim: MemberClaim, now: float) -> None:
        if claim.age_s <= self._timing.remembered_s:
            peer = self.members.add(claim, now)
            if peer is not None:
                self._believed(peer, claim, now, news=True)

    def _believed(self, peer: MemberState, claim: MemberClaim, now: float, *, news: bool) -> None:
        peer.suspicion = self._suspicion(peer, claim, now) if peer.fate is Fate.SUSPECT else None
        if peer.suspicion:
            self.suspects[peer.node] = peer
        else:
            self.suspects.pop(peer.node, None)
        if peer.living:
            self.order.joins(peer.node)
        if peer.lacks_meta:
            self.without_meta[peer.node] = peer
        self.broadcasts.put(peer.node, encode(peer.claim(now)))
        if news:
            self._out.tell(MemberChanged(peer.member()))

    def _suspicion(self, peer: MemberState, claim: MemberClaim, now: float) -> Suspicion:
        members = self.members.living
        least_s, most_s = self._timing.suspicion_s(members, far=self.is_far(peer))
        return Suspicion(
            now, least_s, most_s, self._timing.confirmations_of(members), NodeId(claim.by) if claim.by else self.me.node
        )

    def _confirmed(self, peer: MemberState, suspicion: Suspicion, claim: MemberClaim, now: float) -> None:
        if claim.by and suspicion.confirm(NodeId(claim.by)):
            suspicion.delay_until(now + self._timing.probe_s)
            self.broadcasts.put(peer.node, encode(peer.claim(now, by=claim.by)))

    def is_far(self, peer: MemberState) -> bool:
        """Whether a member is in another region, as far as both regions are known."""
        return peer.meta is not None and self.me.meta is not None and peer.meta.region != self.me.meta.region

    def suspect(self, peer: MemberState, now: float) -> None:
        """Suspect a member whose probe failed; this node is its first accuser."""
        claim = peer.claim(now)
        self.hear(_with_fate(claim, Fate.SUSPECT, by=self.me.node), now)

    def expire(self, now: float) -> None:
        """Declare suspects down whose time to refute is over."""
        for peer in list(self.suspects.values()):
            if peer.suspicion is not None and peer.suspicion.due <= now:
                self.hear(_with_fate(peer.claim(now), Fate.DOWN), now)

    def clean(self, now: float) -> None:
        """Remove members that were down or left for `Timing.remembered_s`."""
        for peer in list(self.members):
            if not peer.living and peer is not self.me and now - peer.changed_at > self._timing.remembered_s:
                self._remove(peer)

    def learn(self, node: NodeId, content: bytes) -> None:
        """Take a member's meta from whoever sends it: it must have the fingerprint that the member claimed."""
        peer = self.members.get(node)
        if peer is not None and peer.learn(content):
            peer.asks = 0
            self.without_meta.pop(node, None)
            self._out.tell(MemberChanged(peer.member()))

    def _remove(self, peer: MemberState) -> None:
        self.members.remove(peer)
        self.broadcasts.drop(peer.node)
        for table in (self.suspects, self.without_meta):
            table.pop(peer.node, None)

    # This node itself.

    def _hear_of_me(self, claim: MemberClaim, now: float) -> None:
        """Refute a claim about this node that it did not make itself, unless this node has left."""
        if claim.boot != self.me.boot and claim.address != self.me.address and claim.fate is Fate.ALIVE:
            self.twin_at = claim.address
        ours = claim.boot == self.me.boot and claim.incarnation == self.me.incarnation and claim.fate is Fate.ALIVE
        if self.me.fate is Fate.LEFT or ours or claim.incarnation < self.me.incarnation:
            return
        if claim.fate is not Fate.ALIVE and claim.boot == self.me.boot:
            self.health.worse()
        self.refute(claim, now)

    def refute(self, claim: MemberClaim, now: float) -> None:
        self._say(now, incarnation=claim.incarnation + 1)

    def declare(self, now: float, *, epoch: int | None, meta: NodeMeta | None) -> None:
        if meta is not None:
            self.me.content, self.me.meta = content_of(meta), meta
            self.me.learned = fingerprint_of(self.me.content)
        self._say(now, incarnation=self.me.incarnation + 1, epoch=epoch)
        self._out.tell(MemberChanged(self.me.member()))

    def leave(self, now: float) -> MemberClaim:
        self._say(now, incarnation=self.me.incarnation + 1, fate=Fate.LEFT)
        return self.me.claim(now)

    def _say(self, now: float, *, incarnation: int, epoch: int | None = None, fate: Fate | None = None) -> None:
        claim = MemberClaim(
            node=self.me.node,
            address=self.me.address,
            incarnation=min(incarnation, (1 << 63) - 1),
            fate=fate or self.me.fate,
            epoch=self.me.epoch if epoch is None else epoch,
            boot=self.me.boot,
            meta=fingerprint_of(self.me.content),
        )
        self.members.change(self.me, claim, now)
        self.broadcasts.put(self.me.node, encode(claim))

    # Operators.

    def forget(self, forget: ForgetNode, now: float) -> bool:
        """Whether it was news. This node is never removed from its own list: it is told, and may come back."""
        if not self.members.fence(forget.node, forget.fence):
            return False
        peer = self.members.get(forget.node)
        if peer is not None and peer is not self.me and peer.epoch <= forget.fence:
            self._remove(peer)
        self.broadcasts.put(f"forget {forget.node}", encode(forget))
        self._out.tell(Forgot(forget.node, forget.fence))
        return True


def _with_fate(claim: MemberClaim, fate: Fate, by: str = "") -> MemberClaim:
    return MemberClaim(
        node=claim.node,
        address=claim.address,
        incarnation=claim.incarnation,
        fate=fate,
        epoch=claim.epoch,
        boot=claim.boot,
        meta=claim.meta,
        by=by,
    )
