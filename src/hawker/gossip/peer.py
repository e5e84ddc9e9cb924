"""One member as this node knows it, and which of two claims about it is the newer one."""

import hashlib

import msgspec

from hawker.gossip.contract import Fate, Member, Meta
from hawker.gossip.frames import Claim
from hawker.gossip.suspicion import Suspicion
from hawker.gossip.timing import RoundTrip
from hawker.ids import NodeId

_RANK = {Fate.ALIVE: 0, Fate.SUSPECT: 1, Fate.DOWN: 2, Fate.LEFT: 3}
_63_BITS = (1 << 63) - 1
_META = msgspec.msgpack.Decoder(Meta)


class Peer:
    """Made from the first claim about it. `changed_at` is when its fate changed, in monotonic seconds; `content` is its
    meta as it wrote it, `learned` that content's fingerprint; `keys` the rank of the keyring that it said it has."""

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
        "node",
        "print",
        "round_trip",
        "skew_s",
        "suspicion",
    )

    def __init__(self, claim: Claim, now: float) -> None:
        self.node = claim.node
        self.round_trip = RoundTrip()
        self.content, self.learned = b"", 0
        self.meta: Meta | None = None
        self.suspicion: Suspicion | None = None
        self.asked_at, self.asks = -1e9, 0
        self.keys = 0
        self.skew_s = 0.0
        self.fate, self.changed_at = claim.fate, now - claim.age_s
        self.take(claim, now)

    def take(self, claim: Claim, now: float) -> None:
        """Believe it. A suspicion is the caller's to begin and to end."""
        if claim.fate is not self.fate:
            self.fate, self.changed_at = claim.fate, now - claim.age_s
        self.address, self.incarnation = claim.address, claim.incarnation
        self.epoch, self.boot, self.print = claim.epoch, claim.boot, claim.meta

    @property
    def living(self) -> bool:
        return self.fate is Fate.ALIVE or self.fate is Fate.SUSPECT

    @property
    def lacks_meta(self) -> bool:
        return self.print != 0 and self.print != self.learned

    def outdone_by(self, claim: Claim) -> bool:
        """A total order, so that all end up with the same whatever they hear first."""
        return (claim.incarnation, _RANK[claim.fate]) > (self.incarnation, _RANK[self.fate])

    def learn(self, content: bytes) -> bool:
        """Its meta, if it is the one that was claimed; whether it was news."""
        if print_of(content) != self.print or content == self.content:
            return False
        try:
            self.meta = _META.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        self.content, self.learned = content, self.print
        return True

    def claim(self, now: float, by: str = "") -> Claim:
        accuser = by or (self.suspicion.accuser if self.suspicion else "")
        return Claim(
            node=self.node,
            address=self.address,
            incarnation=self.incarnation,
            fate=self.fate,
            epoch=self.epoch,
            boot=self.boot,
            meta=self.print,
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
        """Of what all should agree on. Suspicion comes and goes, and who is gone is forgotten at different times."""
        if not self.living:
            return 0
        return digest_of(self.node, self.incarnation, self.boot, self.epoch, self.print, self.address)


def digest_of(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") & _63_BITS


def print_of(content: bytes) -> int:
    """The fingerprint of a meta; never 0, which says that there is none."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") & _63_BITS | 1


def content_of(meta: Meta) -> bytes:
    return msgspec.msgpack.encode(meta)


def alive(node: NodeId, address: str, *, boot: int, epoch: int, content: bytes, incarnation: int = 1) -> Claim:
    """What a node says of itself."""
    return Claim(
        node=node,
        address=address,
        incarnation=incarnation,
        fate=Fate.ALIVE,
        epoch=epoch,
        boot=boot,
        meta=print_of(content),
    )
