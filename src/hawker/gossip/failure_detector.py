"""How well this node itself is: the worse, the more patience it has with others (Lifeguard, LHA-Probe)."""

import math
from collections.abc import Iterator

from hawker.ids import NodeId


class LocalHealth:
    """0 is well. It scales waiting times by `multiplier`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.score = 0

    @property
    def multiplier(self) -> int:
        return self.score + 1

    def worse(self, by: int = 1) -> None:
        self.score = min(self._most, self.score + by)

    def better(self) -> None:
        self.score = max(0, self.score - 1)


# How long a suspect has to refute: less and less, the more others accuse it as well (Lifeguard, LHA-Suspicion).

_REPROBES = 3


class Suspicion:
    """Begins with one accuser. `needed` others shorten it from `most_s` to `least_s`."""

    __slots__ = ("_accusers", "_began", "_least_s", "_most_s", "_needed", "_not_before", "accuser", "reprobes")

    def __init__(self, now: float, least_s: float, most_s: float, needed: int, accuser: NodeId) -> None:
        self._began, self._least_s, self._most_s, self._needed = now, least_s, most_s, needed
        self.accuser = accuser  # the first
        self._accusers = {accuser}
        self.reprobes = 0
        self._not_before = now

    @property
    def confirmed(self) -> int:
        return len(self._accusers) - 1

    @property
    def due(self) -> float:
        if self._needed < 1:
            return self._began + self._least_s
        share = math.log(self.confirmed + 1) / math.log(self._needed + 1)
        due = self._began + max(self._least_s, self._most_s - share * (self._most_s - self._least_s))
        return max(due, self._not_before)

    def reprobe_at(self, every_s: float) -> float:
        """When to ask the suspect itself once more: a few times before its time is up, since what it says against the
        suspicion may have been lost on its way here."""
        return self.due - (_REPROBES - self.reprobes) * every_s if self.reprobes < _REPROBES else float("inf")

    def confirm(self, accuser: NodeId) -> bool:
        """Whether this is news that others should hear. Only as many accusers are kept as count."""
        if accuser in self._accusers or self.confirmed >= self._needed:
            return False
        self._accusers.add(accuser)
        return True

    def delay_until(self, until: float) -> None:
        """Not over before this moment, so that the suspect can be asked, also when others confirm late."""
        self._not_before = until

    def postpone(self, seconds: float) -> None:
        """The one who waits stood still itself, and may have missed the refutation."""
        self._began += seconds
        self._not_before += seconds


# Whom to ask next whether it lives, the one question that is open, and the questions that others asked through us.

_RELAYS = 1024


class ProbeRound:
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


class RoundTrip:
    """A peer's round trip: smoothed, and how much it varies (RFC 6298)."""

    __slots__ = ("_variance", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._variance = 0.0

    def measured(self, seconds: float) -> None:
        if self.seconds == 0.0:
            self.seconds, self._variance = seconds, seconds / 2
        else:
            self._variance += (abs(self.seconds - seconds) - self._variance) / 4
            self.seconds += (seconds - self.seconds) / 8

    def timeout_s(self, first_s: float, least_s: float, most_s: float) -> float:
        """How long to wait for a direct answer: three times what nearly all answers take, once that is known."""
        if self.seconds == 0.0:
            return min(first_s, most_s)
        return min(max(least_s, 3 * (self.seconds + 2.33 * self._variance)), most_s)
