"""Anti-entropy (Demers et al., "Epidemic Algorithms for Replicated Database Maintenance", PODC 1987): a bounded version
vector per scope, its digest for one datagram, and when it is compared with whom. Pure.

The vector has one entry an origin (a row has one owner, so there is nothing to merge), where Corrosion's sync keeps
ranges of an actor's versions. The digest has 64 buckets, each the xor of the hashes of its entries, so that a change
costs two hashes. A linear hash such as a CRC will not do: differences of two entries could cancel out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from struct import Struct

from hawker.catalog.change import Position
from hawker.catalog.fan_out import ReplicaPeers, pick
from hawker.ids import NodeId

BUCKETS = 64
_DIGEST = Struct(f">{BUCKETS}I")
_ENTRY = Struct(">qqq")
_NOTHING = Position()


def bucket_of(origin: NodeId) -> int:
    return blake2b(origin.encode(), digest_size=1).digest()[0] % BUCKETS


class VersionVector:
    """Positions by origin; an origin at `Position()` counts as never heard of. Bounded by its caller, see
    `Inbound.room`. Buckets keep their origins in the order of arrival, so that a simulated run can be repeated."""

    def __init__(self, positions: Mapping[NodeId, Position]) -> None:
        self._positions: dict[NodeId, Position] = {}
        self._hashes: dict[NodeId, int] = {}
        self._buckets = [0] * BUCKETS
        self._origins: list[dict[NodeId, None]] = [
            {} for _ in range(BUCKETS)
        ]  # in order, so that a run can be repeated
        self._bucket: dict[NodeId, int] = {}
        for origin, position in positions.items():
            self.set(origin, position)

    def get(self, origin: NodeId) -> Position:
        return self._positions.get(origin, _NOTHING)

    def __len__(self) -> int:
        return len(self._positions)

    def items(self) -> Iterator[tuple[NodeId, Position]]:
        return iter(self._positions.items())

    def set(self, origin: NodeId, position: Position) -> None:
        bucket = self._bucket.get(origin)
        if bucket is None:
            bucket = self._bucket[origin] = bucket_of(origin)
            self._origins[bucket][origin] = None
        self._positions[origin] = position
        self._count(bucket, origin, position)

    def _count(self, bucket: int, origin: NodeId, position: Position) -> None:
        """The digest has the stream where it is now."""
        fresh = _hash(origin, position)
        self._buckets[bucket] ^= self._hashes.get(origin, 0) ^ fresh
        self._hashes[origin] = fresh

    def digest(self) -> bytes:
        return _DIGEST.pack(*self._buckets)

    def differing(self, digest: bytes) -> tuple[int, ...]:
        """Numbers of the buckets that differ from another replica's digest. Raises `ValueError` for a malformed one."""
        if len(digest) != _DIGEST.size:
            raise ValueError(f"a digest has {_DIGEST.size} bytes, not {len(digest)}")
        theirs = _DIGEST.unpack(digest)
        return tuple(number for number, value in enumerate(self._buckets) if value != theirs[number])

    def within(self, buckets: Iterable[int]) -> Iterator[tuple[NodeId, Position]]:
        """The streams of some buckets."""
        for bucket in buckets:
            for origin in self._origins[bucket]:
                yield origin, self._positions[origin]


def _hash(origin: NodeId, position: Position) -> int:
    """The hash of one entry, 0 for an origin never heard of. The floor is left out: replicas collect on their own."""
    if position.epoch == 0 and position.applied == 0 and position.fence == -1:
        return 0
    entry = origin.encode() + _ENTRY.pack(position.epoch, position.applied, position.fence)
    return int.from_bytes(blake2b(entry, digest_size=4).digest(), "big")


EVERY_S = 2.0
"""Seconds between two digests that a replica sends, per scope."""
JITTER = 0.2
"""Share by which that time varies at random, so that replicas do not compare in step."""
FAR_EVERY = 4
"""Every so many rounds the digest goes to another region, so that regions converge too."""


class Rounds:
    """Schedule of anti-entropy: `due` is when the next digest goes (monotonic seconds)."""

    def __init__(self, now: float, random: Callable[[], float]) -> None:
        self._random = random
        self._number = 0
        self.due = now + EVERY_S * random()

    def next(self, now: float, peers: ReplicaPeers) -> NodeId | None:
        """Begin a round: the peer to compare with, at random in the own region, each fourth time in another one; None
        without peers."""
        self._number += 1
        self.due = now + EVERY_S * (1 + JITTER * (2 * self._random() - 1))
        near = set(peers.near)
        if self._number % FAR_EVERY == 0 and len(near) < len(peers.alive):
            far = [node for node in peers.alive if node not in near]
            return far[int(self._random() * len(far))]
        return next(iter(pick(peers.near or peers.alive, 1, self._random)), None)
