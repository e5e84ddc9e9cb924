"""Anti-entropy: when a replica compares its vector, and with whose.

A digest goes out every two seconds; who differs answers with the entries of the buckets that do.
"""

from collections.abc import Callable

from hawker.catalog.peers import Peers
from hawker.catalog.rumor import pick
from hawker.ids import NodeId

EVERY_S = 2.0
JITTER = 0.2
FAR_EVERY = 4


class Rounds:
    """When the next digest goes, and to whom: any peer of the scope, every fourth time one of another region."""

    def __init__(self, now: float, random: Callable[[], float]) -> None:
        self._random = random
        self._number = 0
        self.due = now + EVERY_S * random()

    def next(self, now: float, peers: Peers) -> NodeId | None:
        self._number += 1
        self.due = now + EVERY_S * (1 + JITTER * (2 * self._random() - 1))
        near = set(peers.near)
        if self._number % FAR_EVERY == 0 and len(near) < len(peers.alive):
            far = [node for node in peers.alive if node not in near]
            return far[int(self._random() * len(far))]
        return next(iter(pick(peers.near or peers.alive, 1, self._random)), None)
