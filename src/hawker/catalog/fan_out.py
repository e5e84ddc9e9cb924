"""Fan-out: the peers of a scope, as gossip tells of them, which of them hear of a change, and in which batches. Plain
values only.

A change is pushed on first receipt to a few peers, half of them near. With f = ceil(ln N) + 1 nearly all hear of it by
push alone (Kermarrec, Massoulie and Ganesh, "Probabilistic reliable dissemination in large-scale systems", 2003);
announcements and anti-entropy find the rest.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from math import ceil, log

from hawker.catalog.messages import Rumor
from hawker.ids import NodeId
from hawker.value_object import ValueObject

DEFAULT_RTT_S = 0.02


class ReplicaPeer(ValueObject, frozen=True):
    """A living node. `rtt_s` is its smoothed round trip in seconds, 0 when it was never measured."""

    node: NodeId
    region: str
    """The region that the node is in: most changes are sent within it."""
    rtt_s: float


class ReplicaPeers:
    """The peers that are alive, this node not among them. `near` are the peers of its own region, in the same order."""

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
        """The round trip to a peer in seconds. What is assumed for a peer that was never measured is a fast
        network's."""
        peer = self._known.get(node)
        return peer.rtt_s if peer is not None and peer.rtt_s > 0 else DEFAULT_RTT_S


MAX_HOPS = 16
"""A change goes no further than this: some three times the way that it needs among a thousand nodes."""

DIRECT_PEERS = 50
"""The most peers, all in one region, with which news goes to each of them at once."""


def fan_out_size(nodes: int) -> int:
    """The number of peers that one node pushes a change to, in a fleet of `nodes`, itself included."""
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
    """`count` nodes of `among` by chance, or all there are."""
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


# Push batching: rumors that come within a few milliseconds go out together, to the same peers, in as few datagrams
# as hold them. A rumor that comes after a pause goes at once. In a small fleet of one region the owner pushes to
# everybody, and each receiver passes one more copy on, later, for what was lost. Elsewhere all pass rumors on to
# the peers that `fan_out` chooses.

NEAR_S, FAR_S = 0.005, 0.01
"""Seconds between two batches, in a fleet of one region and of several."""
RELAY_S = 0.01
"""Seconds that a copy passed on in a small fleet may wait."""
DATAGRAM_BYTES = 1000
"""Bytes of rumors in one message, so that it fits one datagram uncompressed."""
_HEAD_BYTES = 40
_NEVER = float("inf")

AddressedPush = tuple[tuple[NodeId, ...], tuple[Rumor, ...]]


class _News(ValueObject, frozen=True):
    """`without` are those who know it."""

    rumor: Rumor
    without: Collection[NodeId]


class PushBatcher:
    def __init__(self, peers: ReplicaPeers, random: Callable[[], float]) -> None:
        self._peers, self._random = peers, random
        self._news: list[_News] = []
        self._relayed: list[_News] = []
        self._news_due = self._relay_due = _NEVER
        self._went_at = -_NEVER

    @property
    def due(self) -> float:
        return min(self._news_due, self._relay_due)

    def put(self, news: Rumor, now: float, *, without: Collection[NodeId]) -> None:
        if news.hop > 0 and is_direct(self._peers):
            self._relay_due = min(self._relay_due, now + RELAY_S)
            self._relayed.append(_News(news, without))
        else:
            window_s = NEAR_S if len(self._peers.near) == len(self._peers.alive) else FAR_S
            self._news_due = min(self._news_due, max(now, self._went_at + window_s))
            self._news.append(_News(news, without))

    def take(self, now: float) -> list[AddressedPush]:
        """The pushes that go now, each with its addressee."""
        pushes: list[AddressedPush] = []
        if self._news_due <= now:
            news, self._news, self._news_due, self._went_at = self._news, [], _NEVER, now
            pushes += _pushes(news, self._whom(news))
        if self._relay_due <= now:
            news, self._relayed, self._relay_due = self._relayed, [], _NEVER
            pushes += _pushes(news, pick(self._peers.alive, 1, self._random, without=_known_to(news)))
        return pushes

    def _whom(self, news: Sequence[_News]) -> Sequence[NodeId]:
        if is_direct(self._peers):
            return self._peers.alive
        return choose(self._peers, self._random, without=_known_to(news))


def _known_to(news: Sequence[_News]) -> Collection[NodeId]:
    """Who knows all of it."""
    first, *others = news
    return set(first.without).intersection(*(each.without for each in others)) if others else first.without


def _pushes(news: Sequence[_News], whom: Sequence[NodeId]) -> Iterator[AddressedPush]:
    """To each what it does not know, one letter for all who get the same."""
    readers: dict[tuple[Rumor, ...], list[NodeId]] = {}
    for node in whom:
        readers.setdefault(tuple(each.rumor for each in news if node not in each.without), []).append(node)
    for rumors, nodes in readers.items():
        for some in _packed(rumors):
            yield tuple(nodes), some


def _packed(rumors: Sequence[Rumor]) -> Iterator[tuple[Rumor, ...]]:
    """As many at a time as fit; a long one goes alone."""
    some: list[Rumor] = []
    size = 0
    for each in rumors:
        length = len(each.body) + _HEAD_BYTES
        if some and size + length > DATAGRAM_BYTES:
            yield tuple(some)
            some, size = [], 0
        some.append(each)
        size += length
    if some:
        yield tuple(some)
