"""Push batching: rumors that come within a few milliseconds go out together, to the same peers, in as few datagrams as
hold them. A rumor that comes after a pause goes at once.

In a small fleet of one region the owner pushes to everybody, and each receiver passes one more copy on, later, for what
was lost. Elsewhere all pass rumors on to the peers that `fan_out` chooses.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from hawker.catalog import fan_out
from hawker.catalog.fan_out import ReplicaPeers
from hawker.catalog.messages import Rumor
from hawker.ids import NodeId

NEAR_S, FAR_S = 0.005, 0.01
"""Seconds between two batches, in a fleet of one region and of several."""
RELAY_S = 0.01
"""Seconds that a copy passed on in a small fleet may wait."""
DATAGRAM_BYTES = 1000
"""Bytes of rumors in one message, so that it fits one datagram uncompressed."""
_HEAD_BYTES = 40
_NEVER = float("inf")

AddressedPush = tuple[tuple[NodeId, ...], tuple[Rumor, ...]]


@dataclass(frozen=True, slots=True)
class _News:
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
        if news.hop > 0 and fan_out.is_direct(self._peers):
            self._relay_due = min(self._relay_due, now + RELAY_S)
            self._relayed.append(_News(news, without))
        else:
            window_s = NEAR_S if len(self._peers.near) == len(self._peers.alive) else FAR_S
            self._news_due = min(self._news_due, max(now, self._went_at + window_s))
            self._news.append(_News(news, without))

    def take(self, now: float) -> list[AddressedPush]:
        """What goes now, and to whom."""
        pushes: list[AddressedPush] = []
        if self._news_due <= now:
            news, self._news, self._news_due, self._went_at = self._news, [], _NEVER, now
            pushes += _pushes(news, self._whom(news))
        if self._relay_due <= now:
            news, self._relayed, self._relay_due = self._relayed, [], _NEVER
            pushes += _pushes(news, fan_out.pick(self._peers.alive, 1, self._random, without=_known_to(news)))
        return pushes

    def _whom(self, news: Sequence[_News]) -> Sequence[NodeId]:
        if fan_out.is_direct(self._peers):
            return self._peers.alive
        return fan_out.choose(self._peers, self._random, without=_known_to(news))


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
