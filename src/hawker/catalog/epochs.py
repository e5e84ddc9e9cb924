"""Epochs: when this node must begin its streams again, and the number that nobody used before.

A node goes on in its epoch only if its file proves that it is whole, and then only after all peers that are alive said
that they know no more of it than it does itself. In doubt it begins a new one: that costs a reset, and is always right.
"""

from hawker.catalog.change import Position, Scope
from hawker.catalog.fan_out import ReplicaPeers
from hawker.clock import Clock
from hawker.ids import NodeId

_RANDOM_BITS = 20
LISTEN_S = 1.0
PATIENCE_S = 5.0
EVERY_S = 0.25


def next_epoch(clock: Clock, above: int) -> int:
    """Unix seconds and chance, so that a node whose memory was taken away does not choose the same one twice; and above
    all that was heard, should the clock be wrong. Even: `in_scope` makes it that of a scope."""
    seconds = max(int(clock.now()), (above >> _RANDOM_BITS) + 1)
    return (seconds << _RANDOM_BITS) + (int(clock.random() * (1 << _RANDOM_BITS)) & ~1)


def in_scope(epoch: int, scope: Scope) -> int:
    """Both streams of a node begin again together, the global one in the odd epoch: so a token tells its scope, and
    whoever knows one of the two can forget both."""
    return epoch | 1 if scope is Scope.GLOBAL else epoch & ~1


def outdated(own: Position, epoch: int, version: int, fence: int = -1) -> bool:
    """Whether what another says of this node shows that this node lost something, or was forgotten."""
    return (epoch, version) > (own.epoch, own.applied) or fence >= own.epoch


class Inquiry:
    """What the peers know, asked at the start. Over once all that are alive answered, or patience ended."""

    def __init__(self, clock: Clock) -> None:
        self._began = clock.monotonic()
        self._answered: set[NodeId] = set()
        self.due = self._began

    def whom(self, now: float, peers: ReplicaPeers) -> list[NodeId]:
        self.due = now + EVERY_S
        return [node for node in peers.alive if node not in self._answered]

    def heard(self, node: NodeId) -> None:
        self._answered.add(node)

    def passed(self, now: float, peers: ReplicaPeers) -> bool:
        return now - self._began >= LISTEN_S and self._answered.issuperset(peers.alive)

    def failed(self, now: float) -> bool:
        return now - self._began >= PATIENCE_S
