"""Fan-out: the peers of a scope, as gossip tells of them, and which of them hear of a change. Plain values only.

A change is pushed on first receipt to a few peers, half of them near. With f = ceil(ln N) + 1 nearly all hear of it by
push alone (Kermarrec, Massoulie and Ganesh, "Probabilistic reliable dissemination in large-scale systems", 2003);
announcements and anti-entropy find the rest.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import ceil, log

from hawker.ids import NodeId

DEFAULT_RTT_S = 0.02


@dataclass(frozen=True, slots=True)
class ReplicaPeer:
    """A living node. `rtt_s` is its smoothed round trip in seconds, 0 when it was never measured."""

    node: NodeId
    region: str
    rtt_s: float


class ReplicaPeers:
    """Those that are alive, this node not among them. `near` are those of its own region, in the same order."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._known: dict[NodeId, ReplicaPeer] = {}
        self.alive: list[NodeId] = []
        self.near: list[NodeId] = []

    def __contains__(self, node: NodeId) -> bool:
        return node in self._known

    def tell(self, peer: ReplicaPeer) -> None:
        before = self._known.get(peer.node)
        if before is not None and before.region != peer.region:
            self.lose(peer.node)
        if peer.node not in self._known:
            self.alive.append(peer.node)
            if peer.region == self._region:
                self.near.append(peer.node)
        self._known[peer.node] = peer

    def lose(self, node: NodeId) -> None:
        peer = self._known.pop(node, None)
        if peer is not None:
            self.alive.remove(node)
            if peer.region == self._region:
                self.near.remove(node)

    def rtt_s(self, node: NodeId) -> float:
        """What is assumed for a peer that was never measured is a fast network's."""
        peer = self._known.get(node)
        return peer.rtt_s if peer is not None and peer.rtt_s > 0 else DEFAULT_RTT_S


MAX_HOPS = 16
"""A change goes no further than this: some three times the way that it needs among a thousand nodes."""

DIRECT_PEERS = 50
"""With no more peers than this, all in one region, news goes to each of them at once."""


def fan_out_size(nodes: int) -> int:
    """How many peers one node pushes a change to, in a fleet of `nodes`, itself included."""
    return 0 if nodes < 2 else min(nodes - 1, ceil(log(nodes)) + 1)


def is_direct(peers: ReplicaPeers) -> bool:
    """Whether whoever has news tells all of them: a few nodes of one region. Nobody hears of it sooner, and a copy each
    is the least that it can cost."""
    return len(peers.alive) <= DIRECT_PEERS and len(peers.near) == len(peers.alive)


def choose(peers: ReplicaPeers, random: Callable[[], float], *, without: Collection[NodeId]) -> list[NodeId]:
    """Half of the own region, half of all. Nobody twice, none of `without`."""
    count = fan_out_size(len(peers.alive) + 1)
    chosen = pick(peers.near, (count + 1) // 2, random, without=without)
    return chosen + pick(peers.alive, count - len(chosen), random, without={*without, *chosen})


def pick(
    among: Sequence[NodeId], count: int, random: Callable[[], float], *, without: Collection[NodeId] = ()
) -> list[NodeId]:
    """So many of them by chance, or all there are."""
    if len(among) <= count + len(without):
        left = [node for node in among if node not in without]
        return left if len(left) <= count else _sample(left, count, random)
    chosen: list[NodeId] = []
    while len(chosen) < count:
        node = among[int(random() * len(among))]
        if node not in chosen and node not in without:
            chosen.append(node)
    return chosen


def _sample(among: list[NodeId], count: int, random: Callable[[], float]) -> list[NodeId]:
    for place in range(count):
        other = place + int(random() * (len(among) - place))
        among[place], among[other] = among[other], among[place]
    return among[:count]
