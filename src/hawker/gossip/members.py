"""The member list: each member's state, the fences of forgotten members, a digest over both, and the probe order. Pure.

Which of two claims about a member is newer is decided here; what a claim leads to is in `membership`.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from hawker.gossip.contract import Fate, Member, NodeMeta
from hawker.gossip.failure_detector import RoundTrip, Suspicion
from hawker.gossip.frames import MemberClaim
from hawker.ids import NodeId
from hawker.value_object import ValueObject

_RANK = {Fate.ALIVE: 0, Fate.SUSPECT: 1, Fate.DOWN: 2, Fate.LEFT: 3}
_63_BITS = (1 << 63) - 1
_META = msgspec.msgpack.Decoder(NodeMeta)


class MemberState:
    """The state of one member, made from the first claim about it. `changed_at` is when its fate changed, in monotonic
    seconds; `content` is its meta as it wrote it, `learned` that content's fingerprint; `keys` the rank of the keyring
    that it said it has."""

    __slots__ = (
        "address",
        "asked_at",
        "asks",
        "boot",
        "changed_at",
        "content",
        "epoch",
        "fate",
        "incarnation",
        "keys",
        "learned",
        "meta",
        "meta_fingerprint",
        "node",
        "round_trip",
        "skew_s",
        "suspicion",
    )

    def __init__(self, claim: MemberClaim, now: float) -> None:
        self.node = claim.node
        self.round_trip = RoundTrip()
        self.content, self.learned = b"", 0
        self.meta: NodeMeta | None = None
        self.suspicion: Suspicion | None = None
        self.asked_at, self.asks = -1e9, 0
        self.keys = 0
        self.skew_s = 0.0
        self.fate, self.changed_at = claim.fate, now - claim.age_s
        self.take(claim, now)

    def take(self, claim: MemberClaim, now: float) -> None:
        """Believe it. A suspicion is the caller's to begin and to end."""
        if claim.fate is not self.fate:
            self.fate, self.changed_at = claim.fate, now - claim.age_s
        self.address, self.incarnation = claim.address, claim.incarnation
        self.epoch, self.boot, self.meta_fingerprint = claim.epoch, claim.boot, claim.meta

    @property
    def living(self) -> bool:
        return self.fate is Fate.ALIVE or self.fate is Fate.SUSPECT

    @property
    def lacks_meta(self) -> bool:
        return self.meta_fingerprint != 0 and self.meta_fingerprint != self.learned

    def superseded_by(self, claim: MemberClaim) -> bool:
        """A total order, so that all end up with the same whatever they hear first."""
        return (claim.incarnation, _RANK[claim.fate]) > (self.incarnation, _RANK[self.fate])

    def learn(self, content: bytes) -> bool:
        """Takes a member's meta, if it is the one that was claimed; returns whether it was news."""
        if fingerprint_of(content) != self.meta_fingerprint or content == self.content:
            return False
        try:
            self.meta = _META.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        self.content, self.learned = content, self.meta_fingerprint
        return True

    def claim(self, now: float, by: str = "") -> MemberClaim:
        accuser = by or (self.suspicion.accuser if self.suspicion else "")
        return MemberClaim(
            node=self.node,
            address=self.address,
            incarnation=self.incarnation,
            fate=self.fate,
            epoch=self.epoch,
            boot=self.boot,
            meta=self.meta_fingerprint,
            by=accuser,
            age_s=0 if self.living else max(0, int(now - self.changed_at)),
        )

    def member(self) -> Member:
        """`since` is in monotonic seconds still."""
        return Member(
            node=self.node,
            address=self.address,
            incarnation=self.incarnation,
            fate=self.fate,
            epoch=self.epoch,
            since=self.changed_at,
            rtt_s=self.round_trip.seconds,
            skew_s=self.skew_s,
            meta=self.meta,
        )

    def digest(self) -> int:
        """The digest of what all members should agree on; 0 for a member that does not live. Suspicion comes and goes,
        and who is gone is forgotten at different times."""
        if not self.living:
            return 0
        return digest_of(self.node, self.incarnation, self.boot, self.epoch, self.meta_fingerprint, self.address)


def digest_of(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") & _63_BITS


def fingerprint_of(content: bytes) -> int:
    """The fingerprint of a meta; never 0, which says that there is none."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") & _63_BITS | 1


def content_of(meta: NodeMeta) -> bytes:
    return msgspec.msgpack.encode(meta)


def alive_claim(
    node: NodeId, address: str, *, boot: int, epoch: int, content: bytes, incarnation: int = 1
) -> MemberClaim:
    """The claim of a node about itself."""
    return MemberClaim(
        node=node,
        address=address,
        incarnation=incarnation,
        fate=Fate.ALIVE,
        epoch=epoch,
        boot=boot,
        meta=fingerprint_of(content),
    )


# One member as this node knows it, and which of two claims about it is the newer one.


class MemberList:
    """`me` is in it as well. Bounded: beyond `most` members nobody new is taken in."""

    def __init__(self, me: MemberState, most: int, fences: Mapping[NodeId, int]) -> None:
        self.me = me
        self.digest = 0
        self.living = 0  # how many do, suspects and this node included
        self._most = most
        self._peers: dict[NodeId, MemberState] = {}
        self._fences: dict[NodeId, int] = {}
        self._others: list[MemberState] | None = None
        self._insert(me)
        for node, fence in fences.items():
            self.fence(node, fence)

    def __iter__(self) -> Iterator[MemberState]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)

    def get(self, node: NodeId) -> MemberState | None:
        return self._peers.get(node)

    @property
    def fences(self) -> Mapping[NodeId, int]:
        return self._fences

    @property
    def others(self) -> Sequence[MemberState]:
        """The members that live, suspects included, without this node."""
        if self._others is None:
            self._others = [peer for peer in self._peers.values() if peer.living and peer is not self.me]
        return self._others

    def add(self, claim: MemberClaim, now: float) -> MemberState | None:
        """Adds a member and returns it; None when there is no room."""
        if len(self._peers) >= self._most:
            return None
        peer = MemberState(claim, now)
        self._insert(peer)
        return peer

    def _insert(self, peer: MemberState) -> None:
        self._peers[peer.node] = peer
        self._count(peer, 1)

    def change(self, peer: MemberState, claim: MemberClaim, now: float) -> None:
        self._count(peer, -1)
        peer.take(claim, now)
        self._count(peer, 1)

    def remove(self, peer: MemberState) -> None:
        del self._peers[peer.node]
        self._count(peer, -1)

    def _count(self, peer: MemberState, step: int) -> None:
        """In or out of what is kept about all."""
        self.digest ^= peer.digest()
        self.living += step if peer.living else 0
        self._others = None

    def fence(self, node: NodeId, fence: int) -> bool:
        """Raises a node's fence; returns whether it is higher than the one before."""
        before = self._fences.get(node, -1)
        if fence <= before or (before < 0 and len(self._fences) >= self._most):
            return False
        self.digest ^= digest_of(node, before) if before >= 0 else 0
        self.digest ^= digest_of(node, fence)
        self._fences[node] = fence
        return True

    def fenced(self, claim: MemberClaim) -> bool:
        """Whether it speaks for an epoch that was forgotten."""
        return claim.epoch <= self._fences.get(claim.node, -1)

    def some(
        self, count: int, chance: Callable[[], float], without: frozenset[NodeId] = frozenset()
    ) -> list[MemberState]:
        """Up to `count` different ones of those that live, drawn at random."""
        drawn = [peer for peer in self.others if peer.node not in without] if without else list(self.others)
        for at in range(min(count, len(drawn))):
            other = at + int(chance() * (len(drawn) - at))
            drawn[at], drawn[other] = drawn[other], drawn[at]
        return drawn[:count]


def shuffled(peers: Sequence[MemberState], chance: Callable[[], float]) -> list[MemberState]:
    mixed = list(peers)
    for last in range(len(mixed) - 1, 0, -1):
        other = int(chance() * (last + 1))
        mixed[last], mixed[other] = mixed[other], mixed[last]
    return mixed


class ProbeOrder:
    """Everyone in turn, each time in another order, so none waits longer than two rounds (SWIM, 4.3)."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._ahead: list[NodeId] = []
        self._waiting: set[NodeId] = set()  # the same ones

    def next(self, members: MemberList) -> MemberState | None:
        for _ in range(2):
            while self._ahead:
                peer = members.get(self._popped())
                if peer is not None and peer.living and peer is not members.me:
                    return peer
            self._ahead = [peer.node for peer in shuffled(members.others, self._chance)]
            self._waiting = set(self._ahead)
        return None

    def _popped(self) -> NodeId:
        node = self._ahead.pop()
        self._waiting.discard(node)
        return node

    def joins(self, node: NodeId) -> None:
        """Somewhere in the round that is under way."""
        if node not in self._waiting:
            self._waiting.add(node)
            self._ahead.insert(int(self._chance() * (len(self._ahead) + 1)), node)


class Identity(ValueObject, frozen=True, kw_only=True):
    """`boot` names this life of the process, `address` (HOST:PORT) is where others reach it. `fences` are what an
    operator had forgotten before this process began, as far as that was kept."""

    node: NodeId
    cluster: str
    """The cluster's id: frames of another one are not taken."""
    address: str
    boot: int
    meta: NodeMeta
    epoch: int = 0
    """The epoch of the node's history in the catalog; 0 where it publishes nothing."""
    fences: Mapping[NodeId, int] = msgspec.field(default_factory=dict)
