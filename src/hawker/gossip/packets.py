"""Packets: whole frames first, then as many queued broadcasts as fit into the rest of the datagram."""

from collections.abc import Callable, Iterable

from hawker.gossip.broadcasts import BroadcastQueue
from hawker.gossip.contract import Fate
from hawker.gossip.effects import EffectBuffer
from hawker.gossip.failure_detector import Relay
from hawker.gossip.frames import Ack, Frame, MemberClaim, Nack, Note, Ping, batches, encode
from hawker.gossip.members import MemberState
from hawker.gossip.membership import Membership
from hawker.gossip.sealing import PAYLOAD_BYTES
from hawker.gossip.timing import Timing

_SYNC_DATAGRAMS = 256


class Packets:
    """Fills datagrams and leaves them in `out`. `wall` is Unix seconds."""

    def __init__(
        self,
        membership: Membership,
        broadcasts: BroadcastQueue,
        timing: Timing,
        out: EffectBuffer,
        wall: Callable[[], float],
    ) -> None:
        self._membership, self._broadcasts = membership, broadcasts
        self._timing = timing
        self._out = out
        self._wall = wall

    def wall_ms(self) -> int:
        return max(0, int(self._wall() * 1000))

    def post(self, address: str, *frames: Frame) -> None:
        """These frames, and news behind them."""
        self._fill(address, b"".join(map(encode, frames)))

    def news(self, to: MemberState) -> None:
        """Nothing but news; nothing at all when there is none."""
        broadcasts = self._broadcasts.take(PAYLOAD_BYTES, self._transmits())
        if broadcasts:
            self._out.send(to.address, b"".join(broadcasts))

    def ping(self, peer: MemberState, seq: int, keys: int) -> None:
        """With what we are, and what we think of it when that is not the best, so that it can refute at once."""
        digest = self._membership.members.digest
        frames: list[Frame] = [Ping(seq=seq, to=peer.node, at=self.wall_ms(), view=digest, keys=keys), self._own()]
        self.post(peer.address, *frames, *self._reproach(peer))

    def ack(self, address: str, seq: int, keys: int, peer: MemberState | None, *, current: bool) -> None:
        """`peer` is what is known of who asked, `current` whether it is the process that is known."""
        me, digest = self._membership.me.node, self._membership.members.digest
        ack = Ack(seq=seq, of=me, at=self.wall_ms(), view=digest, keys=keys)
        own = [] if current else [self._own()]
        self.post(address, ack, *own, *(self._reproach(peer, current) if peer is not None else ()))

    def nack(self, relay: Relay) -> None:
        self.post(relay.address, Nack(seq=relay.seq))

    def note(self, to: MemberState, message: bytes) -> None:
        self._fill(to.address, encode(Note(body=message)))

    def full_state(self, address: str, *first: Frame, now: float) -> None:
        """All that is believed, in as many datagrams as it takes, this node itself at the front."""
        peers = [self._membership.me, *(peer for peer in self._membership.members if peer is not self._membership.me)]
        frames: Iterable[bytes] = [*map(encode, first), *(encode(peer.claim(now)) for peer in peers)]
        for payload in batches(frames, PAYLOAD_BYTES)[:_SYNC_DATAGRAMS]:
            self._out.send(address, payload)

    def _fill(self, address: str, payload: bytes) -> None:
        broadcasts = self._broadcasts.take(PAYLOAD_BYTES - len(payload), self._transmits())
        self._out.send(address, b"".join((payload, *broadcasts)))

    def _transmits(self) -> int:
        return self._timing.transmits(self._membership.members.living)

    def _own(self) -> MemberClaim:
        return self._membership.me.claim(0.0)

    def _reproach(self, peer: MemberState, current: bool = True) -> tuple[MemberClaim, ...]:
        return () if peer.fate is Fate.ALIVE and current else (peer.claim(peer.changed_at),)
