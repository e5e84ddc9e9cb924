"""Where a replica is in every stream of a scope, and a digest of it that two replicas can compare in one datagram.

The digest has 64 buckets, each the xor of the hashes of its streams, so that a step costs two hashes, whatever the
number of streams. The hash is a real one: with a linear one, as a CRC, two streams' differences could cancel out.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from struct import Struct

from hawker.catalog.change import Position
from hawker.ids import NodeId

BUCKETS = 64
_DIGEST = Struct(f">{BUCKETS}I")
_ENTRY = Struct(">qqq")
_NOTHING = Position()


def bucket_of(origin: NodeId) -> int:
    return blake2b(origin.encode(), digest_size=1).digest()[0] % BUCKETS


class VersionVector:
    """The positions by origin. What is at `Position()` counts as never heard of."""

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
        """The buckets that are not as in another replica's digest. Raises `ValueError` for what is none."""
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
    """0 for what was never heard of; the floor is each replica's own affair."""
    if position.epoch == 0 and position.applied == 0 and position.fence == -1:
        return 0
    entry = origin.encode() + _ENTRY.pack(position.epoch, position.applied, position.fence)
    return int.from_bytes(blake2b(entry, digest_size=4).digest(), "big")
