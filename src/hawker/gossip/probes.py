"""Whom to ask next whether it lives, the one question that is open, and the questions that others asked through us."""

from collections.abc import Callable, Iterator

from hawker.gossip.members import Roster, shuffled
from hawker.gossip.peer import Peer
from hawker.ids import NodeId

_RELAYS = 1024


class Probe:
    """One question. It ends when the next one begins."""

    __slots__ = ("acked", "direct_at", "nacks", "node", "relays", "sent_at", "seq")

    def __init__(self, seq: int, node: NodeId, sent_at: float, direct_at: float) -> None:
        self.seq, self.node, self.sent_at, self.direct_at = seq, node, sent_at, direct_at
        self.acked = False
        self.relays: frozenset[NodeId] = frozenset()
        self.nacks: set[NodeId] = set()

    def answered(self, of: NodeId, sender: NodeId) -> bool:
        """Whether this ack is one: by the member itself, or by one that was asked to ask."""
        return of == self.node and (sender == of or sender in self.relays)

    @property
    def missing(self) -> int:
        """How much less this node hears than it should: each healthy relay says at least that it asked."""
        return len(self.relays) - len(self.nacks) if self.relays else 1


class Order:
    """Everyone in turn, each time in another order, so none waits longer than two rounds (SWIM, 4.3)."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._ahead: list[NodeId] = []
        self._waiting: set[NodeId] = set()  # the same ones

    def next(self, roster: Roster) -> Peer | None:
        for _ in range(2):
            while self._ahead:
                peer = roster.get(self._popped())
                if peer is not None and peer.living and peer is not roster.me:
                    return peer
            self._ahead = [peer.node for peer in shuffled(roster.others, self._chance)]
            self._waiting = set(self._ahead)
        return None

    def _popped(self) -> NodeId:
        node = self._ahead.pop()
        self._waiting.discard(node)
        return node

    def joins(self, node: NodeId) -> None:
        """Somewhere in the round that is under way."""
        if node not in self._waiting:
            self._waiting.add(node)
            self._ahead.insert(int(self._chance() * (len(self._ahead) + 1)), node)


class Relay:
    """A question of another member that this one asks for it."""

    __slots__ = ("address", "nack_at", "seq", "until")

    def __init__(self, seq: int, address: str, nack_at: float, until: float) -> None:
        self.seq, self.address, self.nack_at, self.until = seq, address, nack_at, until


class Relays:
    """By the number of our own question. Bounded; the oldest goes."""

    def __init__(self) -> None:
        self._relays: dict[int, Relay] = {}

    def __len__(self) -> int:
        return len(self._relays)

    def add(self, seq: int, relay: Relay) -> None:
        if len(self._relays) >= _RELAYS:
            del self._relays[next(iter(self._relays))]
        self._relays[seq] = relay

    def answered(self, seq: int) -> Relay | None:
        return self._relays.pop(seq, None)

    @property
    def due(self) -> float:
        if not self._relays:
            return float("inf")
        return min(min(relay.nack_at, relay.until) for relay in self._relays.values())

    def silent(self, now: float) -> Iterator[Relay]:
        """Those to whom it must be said that nothing was heard. An answer that is late is passed on still."""
        for seq, relay in list(self._relays.items()):
            if relay.nack_at <= now:
                relay.nack_at = float("inf")
                yield relay
            if relay.until <= now:
                del self._relays[seq]
