"""All members that are known, the fences of those that were forgotten, and one digest over both. No protocol here."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hawker.gossip.frames import Claim
from hawker.gossip.peer import Peer, digest_of
from hawker.ids import NodeId


class Roster:
    """`me` is in it as well. Bounded: beyond `most` members nobody new is taken in."""

    def __init__(self, me: Peer, most: int, fences: Mapping[NodeId, int]) -> None:
        self.me = me
        self.digest = 0
        self.living = 0  # how many do, suspects and this node included
        self._most = most
        self._peers: dict[NodeId, Peer] = {}
        self._fences: dict[NodeId, int] = {}
        self._others: list[Peer] | None = None
        self._insert(me)
        for node, fence in fences.items():
            self.fence(node, fence)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)

    def get(self, node: NodeId) -> Peer | None:
        return self._peers.get(node)

    @property
    def fences(self) -> Mapping[NodeId, int]:
        return self._fences

    @property
    def others(self) -> Sequence[Peer]:
        """Those that live, suspects included, without this node."""
        if self._others is None:
            self._others = [peer for peer in self._peers.values() if peer.living and peer is not self.me]
        return self._others

    def add(self, claim: Claim, now: float) -> Peer | None:
        """None when there is no room."""
        if len(self._peers) >= self._most:
            return None
        peer = Peer(claim, now)
        self._insert(peer)
        return peer

    def _insert(self, peer: Peer) -> None:
        self._peers[peer.node] = peer
        self._count(peer, 1)

    def change(self, peer: Peer, claim: Claim, now: float) -> None:
        self._count(peer, -1)
        peer.take(claim, now)
        self._count(peer, 1)

    def remove(self, peer: Peer) -> None:
        del self._peers[peer.node]
        self._count(peer, -1)

    def _count(self, peer: Peer, step: int) -> None:
        """In or out of what is kept about all."""
        self.digest ^= peer.digest()
        self.living += step if peer.living else 0
        self._others = None

    def fence(self, node: NodeId, fence: int) -> bool:
        """Whether it is higher than the one before."""
        before = self._fences.get(node, -1)
        if fence <= before or (before < 0 and len(self._fences) >= self._most):
            return False
        self.digest ^= digest_of(node, before) if before >= 0 else 0
        self.digest ^= digest_of(node, fence)
        self._fences[node] = fence
        return True

    def fenced(self, claim: Claim) -> bool:
        """Whether it speaks for an epoch that was forgotten."""
        return claim.epoch <= self._fences.get(claim.node, -1)

    def some(self, count: int, chance: Callable[[], float], without: frozenset[NodeId] = frozenset()) -> list[Peer]:
        """Up to `count` different ones of those that live, drawn at random."""
        drawn = [peer for peer in self.others if peer.node not in without] if without else list(self.others)
        for at in range(min(count, len(drawn))):
            other = at + int(chance() * (len(drawn) - at))
            drawn[at], drawn[other] = drawn[other], drawn[at]
        return drawn[:count]


def shuffled(peers: Sequence[Peer], chance: Callable[[], float]) -> list[Peer]:
    mixed = list(peers)
    for last in range(len(mixed) - 1, 0, -1):
        other = int(chance() * (last + 1))
        mixed[last], mixed[other] = mixed[other], mixed[last]
    return mixed
