"""Whom to tell of a change: push on first receipt, to a few, half of them near.

With f = ceil(ln N) + 1 nearly all hear of it by push alone (Kermarrec, Massoulie and Ganesh, "Probabilistic reliable
dissemination in large-scale systems", 2003); announcements and anti-entropy find the rest.
"""

from collections.abc import Callable, Collection, Sequence
from math import ceil, log

from hawker.catalog.peers import Peers
from hawker.ids import NodeId

HOPS = 16
"""A change goes no further than this: some three times the way that it needs among a thousand nodes."""

DIRECT = 50
"""With no more peers than this, all in one region, news goes to each of them at once."""


def fan_out(nodes: int) -> int:
    """How many are told, in a fleet of so many, the teller included."""
    return 0 if nodes < 2 else min(nodes - 1, ceil(log(nodes)) + 1)


def is_direct(peers: Peers) -> bool:
    """Whether whoever has news tells all of them: a few nodes of one region. Nobody hears of it sooner, and a copy each
    is the least that it can cost."""
    return len(peers.alive) <= DIRECT and len(peers.near) == len(peers.alive)


def choose(peers: Peers, random: Callable[[], float], *, without: Collection[NodeId]) -> list[NodeId]:
    """Half of the own region, half of all. Nobody twice, none of `without`."""
    count = fan_out(len(peers.alive) + 1)
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
