"""The protocol as a state machine: it takes what was heard and what time it is, and returns what to send and to tell.

SWIM with Lifeguard. `receive` never acts on time, `tick` never on messages; the owner calls `tick` at `next_at`. A tick
that comes much too late means that this node stood still, so it blames itself before it blames others.
"""

from collections.abc import Callable, Sequence

from hawker.gossip.broadcasts import BroadcastQueue
from hawker.gossip.contract import Fate, Member, NodeMeta
from hawker.gossip.dispatch import FrameDispatcher, FrameSource
from hawker.gossip.effects import EffectBuffer, Effects, FallbackPing
from hawker.gossip.failure_detector import ProbeRound, Timing
from hawker.gossip.frames import ForgetNode, Frame, Join, MemberClaim, PingReq, decode
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.members import Identity, MemberState, alive_claim, content_of
from hawker.gossip.membership import Membership
from hawker.gossip.packets import Packets
from hawker.ids import NodeId

_NEVER = float("inf")
_FIRST_GOSSIP = 0.2  # of the gossip period: news that comes together goes together
_SEEDS = 3
_JOIN_AT_MOST_S = 10.0
_METAS = 10
_META_AT_MOST_S = 30.0
_FAREWELLS = 16
_CLEAN_S = 60.0


class Swim:
    """`chance` is uniform in [0, 1); `wall` is Unix seconds, told to others so that clocks can be compared."""

    def __init__(
        self,
        identity: Identity,
        keyring: GossipKeyring,
        *,
        now: float,
        chance: Callable[[], float],
        wall: Callable[[], float],
        timing: Timing | None = None,
        membership: type[Membership] = Membership,
    ) -> None:
        self._timing = timing or Timing()
        self._chance = chance
        self._out = EffectBuffer()
        content = content_of(identity.meta)
        claim = alive_claim(identity.node, identity.address, boot=identity.boot, epoch=identity.epoch, content=content)
        me = MemberState(claim, now)
        me.learn(content)
        broadcasts = BroadcastQueue()
        self.membership = membership(
            me, timing=self._timing, chance=chance, fences=identity.fences, broadcasts=broadcasts, out=self._out
        )
        self.packets = Packets(self.membership, broadcasts, self._timing, self._out, wall)
        self.dispatcher = FrameDispatcher(identity, keyring, self.membership, self.packets, self._timing, self._out)
        self._seeds: Sequence[str] = ()
        self._join_at, self._join_s = _NEVER, self._timing.join_s
        self._probe: ProbeRound | None = None
        self._probe_at = now + chance() * self._timing.probe_s
        self._gossip_at = _NEVER
        self._upkeep_at = now + chance() * self._timing.upkeep_s
        self._reach_at = now + self._timing.reach_s * (0.5 + chance())
        self._clean_at = now + _CLEAN_S
        self._last_at = now

    # What its owner asks.

    @property
    def me(self) -> MemberState:
        return self.membership.me

    @property
    def next_at(self) -> float:
        """The moment at which something is to be done next. It is asked with every datagram, so that what is rarely
        there costs nothing."""
        due = min(self._probe_at, self._upkeep_at, self._join_at, self.dispatcher.relays.due)
        if self._probe is not None and self._probe.direct_at < due:
            due = self._probe.direct_at
        if self._gossip_at < due and self.membership.broadcasts:
            due = self._gossip_at
        for peer in self.membership.suspects.values():
            if peer.suspicion is not None:
                due = min(due, peer.suspicion.due, peer.suspicion.reprobe_at(self._timing.probe_s))
        return due

    def members(self) -> list[Member]:
        return [peer.member() for peer in self.membership.members]

    def join(self, seeds: Sequence[str], now: float) -> Effects:
        """Ask these addresses until one lets us in, and again whenever nobody else is left."""
        self._seeds = [seed for seed in seeds if seed != self.me.address]
        self._join_s = self._timing.join_s
        self._join_at = now if self._seeds else _NEVER
        self.dispatcher.joining = bool(self._seeds)
        return self.tick(now)

    def declare(self, now: float, *, epoch: int | None = None, meta: NodeMeta | None = None) -> Effects:
        self.membership.declare(now, epoch=epoch, meta=meta)
        return self._done(now)

    def forget(self, node: NodeId, fence: int, now: float) -> Effects:
        self.membership.forget(ForgetNode(node=node, fence=fence, at=self.packets.wall_ms()), now)
        return self._done(now)

    def rekey(self, keyring: GossipKeyring, now: float) -> Effects:
        """Takes an operator's new keyring, one step on from the one in use. Raises nothing: an older one changes
        nothing."""
        self.dispatcher.adopt(keyring)
        return self._done(now)

    def note(self, to: MemberState, message: bytes) -> Effects:
        self.packets.note(to, message)
        return self._out.taken()

    def fallback_acked(self, seq: int, now: float) -> Effects:
        """The member answered over a stream: so it lives, whatever is lost between us."""
        if self._probe and self._probe.seq == seq:
            self._probe.acked = True
        return self._done(now)

    def leave(self, now: float) -> Effects:
        claim = self.membership.leave(now)
        for peer in self.membership.members.some(_FAREWELLS, self._chance):
            self.packets.post(peer.address, claim)
        self._probe, self._probe_at, self._join_at = None, _NEVER, _NEVER
        return self._done(now)

    # Messages.

    def receive(self, sender: NodeId, boot: int, address: str, payload: bytes, now: float, foreign: bool) -> Effects:
        """Takes what an authentic datagram of `sender` holds. Raises `Malformed` for what is no sequence of frames;
        then nothing was changed."""
        frames = decode(payload)
        self._notice_stall(now)
        if foreign:
            self.dispatcher.foreigner(sender, address, frames, now)
        elif sender == self.me.node:
            if boot != self.me.boot:
                self.dispatcher.twin(boot, address, frames, now)
        elif any(isinstance(frame, Join) for frame in frames):
            self.dispatcher.joiner(sender, address, frames, now)
        else:
            self._listen(sender, boot, address, frames, now)
        return self._done(now)

    def _listen(self, sender: NodeId, boot: int, address: str, frames: list[Frame], now: float) -> None:
        for frame in frames:
            if isinstance(frame, MemberClaim):
                self.dispatcher.claim(frame, sender, address, now)
        heard = FrameSource(sender, boot, address, now, self.membership.members.get(sender))
        for frame in frames:
            if not isinstance(frame, MemberClaim):
                self.dispatcher.answer(frame, heard, self._probe)

    # Time.

    def tick(self, now: float) -> Effects:
        self._notice_stall(now)
        self.membership.expire(now)
        self._reprobe_suspects(now)
        for relay in self.dispatcher.relays.silent(now):
            self.packets.nack(relay)
        if self._probe and self._probe.direct_at <= now:
            self._ask_others(self._probe)
        if self._probe_at <= now:
            self._conclude(now)
            self._begin(now)
        if self._join_at <= now:
            self._ask_seeds(now)
        if self._upkeep_at <= now:
            self._upkeep(now)
        if self._gossip_at <= now:
            self._gossip(now)
        return self._done(now)

    def _done(self, now: float) -> Effects:
        twin_at, self.membership.twin_at = self.membership.twin_at, None
        if twin_at is not None:
            self.dispatcher.challenge(twin_at, now)
        if not self.membership.broadcasts:
            self._gossip_at = _NEVER
        elif self._gossip_at == _NEVER:
            self._gossip_at = now + _FIRST_GOSSIP * self._timing.gossip_s
        return self._out.taken()

    def _notice_stall(self, now: float) -> None:
        """A tick was due at `next_at`, or right after whatever moved that into the past. When this node stood still,
        answers and refutations may lie unread: everyone gets the time that it did not have."""
        last_at, self._last_at = self._last_at, now
        if now - last_at <= self._timing.stall_s:
            return
        late_s = now - max(self.next_at, last_at)
        if late_s <= self._timing.stall_s:
            return
        self.membership.health.worse(max(1, int(late_s)))
        for peer in self.membership.suspects.values():
            if peer.suspicion:
                peer.suspicion.postpone(late_s)
        if self._probe:
            self._probe, self._probe_at = None, now

    def _reprobe_suspects(self, now: float) -> None:
        for peer in self.membership.suspects.values():
            suspicion, every_s = peer.suspicion, self._timing.probe_s
            if suspicion is not None and suspicion.reprobe_at(every_s) <= now:
                while suspicion.reprobe_at(every_s) <= now:
                    suspicion.reprobes += 1
                self.packets.ping(peer, self.dispatcher.next_seq(), self.dispatcher.rank)

    # Probing.

    def _begin(self, now: float) -> None:
        """Begin the probe of the next member, and set when the one after it begins."""
        peer = self.membership.order.next(self.membership.members)
        far = peer is not None and self.membership.is_far(peer)
        # A slow node must not accuse others: the worse its own health, the longer its period and its timeouts
        # (Lifeguard, LHA-Probe). Between regions loss comes in longer bursts, so the period is stretched as well.
        multiplier = self.membership.health.multiplier
        period_s = self._timing.probe_s * (self._timing.suspicion_far if far else 1.0)
        self._probe_at = now + period_s * multiplier
        if peer is None:
            self._probe = None
            return
        # The wait for a direct ack follows the measured round trip. It is capped by 0.6 of the period: indirect pings
        # and the fallback ping need the rest of it, or a lost ack would always become a suspicion.
        first_s = self._timing.direct_far_s if far else self._timing.direct_s
        direct_s = peer.round_trip.timeout_s(first_s, self._timing.direct_least_s, first_s * 2) * multiplier
        self._probe = ProbeRound(
            self.dispatcher.next_seq(), peer.node, now, now + min(direct_s, 0.6 * period_s * multiplier)
        )
        self.packets.ping(peer, self._probe.seq, self.dispatcher.rank)

    def _ask_others(self, probe: ProbeRound) -> None:
        probe.direct_at = _NEVER
        peer = self.membership.members.get(probe.node)
        if peer is None or probe.acked:
            return
        through = self.membership.members.some(self._timing.relays, self._chance, frozenset({probe.node}))
        probe.relays = frozenset(relay.node for relay in through)
        for relay in through:
            self.packets.post(relay.address, PingReq(seq=probe.seq, to=peer.node, address=peer.address))
        self._out.tell(FallbackPing(peer.node, peer.address, probe.seq))

    def _conclude(self, now: float) -> None:
        probe, self._probe = self._probe, None
        if probe is None:
            return
        if probe.acked:
            self.membership.health.better()
            return
        self.membership.health.worse(probe.missing)
        peer = self.membership.members.get(probe.node)
        if peer is not None and peer.living:
            self.membership.suspect(peer, now)

    # The rest that is done now and then.

    def _ask_seeds(self, now: float) -> None:
        if not self.dispatcher.joining:
            self._join_at = _NEVER
            return
        first = int(self._chance() * len(self._seeds))
        for seed in [*self._seeds[first:], *self._seeds[:first]][:_SEEDS]:
            self.packets.post(seed, Join(cluster=self.dispatcher.cluster), self.me.claim(now))
        self._join_at, self._join_s = now + self._join_s, min(_JOIN_AT_MOST_S, self._join_s * 1.5)

    def _gossip(self, now: float) -> None:
        peers = self.membership.members.some(self._timing.gossip_peers, self._chance)
        for peer in peers:
            self.packets.news(peer)
        self._gossip_at = now + self._timing.gossip_s

    def _upkeep(self, now: float) -> None:
        self._upkeep_at = now + self._timing.upkeep_s
        if self.me.fate is Fate.LEFT:
            return
        if self._clean_at <= now:
            self._clean_at = now + _CLEAN_S
            self.membership.clean(now)
        self._ask_metas(now)
        if self._reach_at <= now:
            self._reach_at = now + self._timing.reach_s * (0.5 + self._chance())
            self._reach_out(now)

    def _reach_out(self, now: float) -> None:
        """To one of those that are down: it may be back, or the way to it. And to the seeds, when nobody is left."""
        down = [peer for peer in self.membership.members if peer.fate is Fate.DOWN]
        if down:
            peer = down[int(self._chance() * len(down))]
            self.packets.ping(peer, self.dispatcher.next_seq(), self.dispatcher.rank)
        if self._seeds and self.membership.members.living == 1 and self._join_at == _NEVER:
            self.dispatcher.joining, self._join_at, self._join_s = True, now, self._timing.join_s

    def _ask_metas(self, now: float) -> None:
        without_meta = [peer for peer in self.membership.without_meta.values() if peer.living and peer.asked_at <= now]
        for peer in without_meta[:_METAS]:
            others = self.membership.members.some(1, self._chance, frozenset({peer.node})) if peer.asks % 2 else []
            self.dispatcher.ask_meta(peer, (others or [peer])[0].address)
            peer.asked_at = now + min(_META_AT_MOST_S, 2.0**peer.asks)
            peer.asks += 1
