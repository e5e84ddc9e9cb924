"""The failure detector's values: local health, suspicions, the open probe, indirect pings, round trips. Pure.

SWIM (Das, Gupta, Motivala, 2002) with Lifeguard (Dadgar, Phillips, Currey, 2018). When things happen is in `swim`, how
long they take in `timing`.
"""

import math
from collections.abc import Iterator

from hawker.ids import NodeId

_REPROBES = 3
_RELAYS = 1024


class LocalHealth:
    """How well this node itself works, so that a slow node does not accuse others (Lifeguard, LHA-Probe). `score` is 0
    for a healthy node and at most `most`; probe periods and timeouts are multiplied by `multiplier`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.score = 0

    @property
    def multiplier(self) -> int:
        """The local health multiplier, 1 for a healthy node."""
        return self.score + 1

    def worse(self, by: int = 1) -> None:
        """Count evidence against this node: a failed probe with nacks missing, a refuted suspicion, a stall."""
        self.score = min(self._most, self.score + by)

    def better(self) -> None:
        """Count a probe that was acked."""
        self.score = max(0, self.score - 1)


class Suspicion:
    """The time that a suspect has to refute (Lifeguard, LHA-Suspicion). It begins at `now` (monotonic seconds) with one
    accuser and lasts `most_s`; each confirmation by another accuser shortens it, `needed` of them to `least_s`:
    `most_s - (most_s - least_s) * log(confirmed + 1) / log(needed + 1)`. `reprobes` counts pings sent to the
    suspect."""

    __slots__ = ("_accusers", "_began", "_least_s", "_most_s", "_needed", "_not_before", "accuser", "reprobes")

    def __init__(self, now: float, least_s: float, most_s: float, needed: int, accuser: NodeId) -> None:
        self._began, self._least_s, self._most_s, self._needed = now, least_s, most_s, needed
        self.accuser = accuser  # the first
        self._accusers = {accuser}
        self.reprobes = 0
        self._not_before = now

    @property
    def confirmed(self) -> int:
        """Accusers beside the first one, at most `needed`."""
        return len(self._accusers) - 1

    @property
    def due(self) -> float:
        """Monotonic seconds at which the suspect is declared down."""
        if self._needed < 1:
            return self._began + self._least_s
        share = math.log(self.confirmed + 1) / math.log(self._needed + 1)
        due = self._began + max(self._least_s, self._most_s - share * (self._most_s - self._least_s))
        return max(due, self._not_before)

    def reprobe_at(self, every_s: float) -> float:
        """When to ping the suspect itself once more: up to three times, `every_s` apart, in the last seconds before it
        is due, because its refutation may have been lost on the way here. Infinite after the third."""
        return self.due - (_REPROBES - self.reprobes) * every_s if self.reprobes < _REPROBES else float("inf")

    def confirm(self, accuser: NodeId) -> bool:
        """Add an accuser. True when it shortens the suspicion, so that others should hear of it too."""
        if accuser in self._accusers or self.confirmed >= self._needed:
            return False
        self._accusers.add(accuser)
        return True

    def delay_until(self, until: float) -> None:
        """Keep the suspicion open until then (monotonic seconds): a late confirmation must not end it at once, before
        the suspect could be pinged."""
        self._not_before = until

    def postpone(self, seconds: float) -> None:
        """Give the suspect the time in which this node stood still and may have missed its refutation."""
        self._began += seconds
        self._not_before += seconds


class ProbeRound:
    """One probe of one member; it ends when the next one begins. `seq` is the number of its ping, `direct_at` the
    monotonic time at which indirect pings are sent, `relays` the members that were asked to send them, `nacks` those of
    them that answered with a nack."""

    __slots__ = ("acked", "direct_at", "nacks", "node", "relays", "sent_at", "seq")

    def __init__(self, seq: int, node: NodeId, sent_at: float, direct_at: float) -> None:
        self.seq, self.node, self.sent_at, self.direct_at = seq, node, sent_at, direct_at
        self.acked = False
        self.relays: frozenset[NodeId] = frozenset()
        self.nacks: set[NodeId] = set()

    def answered(self, of: NodeId, sender: NodeId) -> bool:
        """Whether this ack completes the probe: direct, or relayed by one of `relays`."""
        return of == self.node and (sender == of or sender in self.relays)

    @property
    def missing(self) -> int:
        """Nacks that did not come, the amount by which local health gets worse when the probe fails: a healthy relay
        answers with an ack or a nack (Lifeguard). 1 when no relay was asked."""
        return len(self.relays) - len(self.nacks) if self.relays else 1


class Relay:
    """An indirect ping that this node sends for another member: `seq` and `address` are of the member that asked,
    `nack_at` and `until` monotonic seconds for the nack and for the end."""

    __slots__ = ("address", "nack_at", "seq", "until")

    def __init__(self, seq: int, address: str, nack_at: float, until: float) -> None:
        self.seq, self.address, self.nack_at, self.until = seq, address, nack_at, until


class Relays:
    """Indirect pings under way, by the sequence number of this node's own ping. Bounded: the oldest is dropped."""

    def __init__(self) -> None:
        self._relays: dict[int, Relay] = {}

    def __len__(self) -> int:
        return len(self._relays)

    def add(self, seq: int, relay: Relay) -> None:
        if len(self._relays) >= _RELAYS:
            del self._relays[next(iter(self._relays))]
        self._relays[seq] = relay

    def answered(self, seq: int) -> Relay | None:
        """Take out the indirect ping that this ack answers."""
        return self._relays.pop(seq, None)

    @property
    def due(self) -> float:
        """Monotonic seconds at which `silent` has something next."""
        if not self._relays:
            return float("inf")
        return min(min(relay.nack_at, relay.until) for relay in self._relays.values())

    def silent(self, now: float) -> Iterator[Relay]:
        """Indirect pings whose nack is due. An ack that comes after its nack is still passed on, until `until`."""
        for seq, relay in list(self._relays.items()):
            if relay.nack_at <= now:
                relay.nack_at = float("inf")
                yield relay
            if relay.until <= now:
                del self._relays[seq]


class RoundTrip:
    """Smoothed round trip to one member and its variation, as TCP estimates them (RFC 6298). `seconds` is 0 before the
    first measurement."""

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
        """Seconds to wait for a direct ack: `3 * (seconds + 2.33 * variation)` within `least_s` and `most_s`, so three
        times what 99 of 100 acks take; `first_s` before anything was measured."""
        if self.seconds == 0.0:
            return min(first_s, most_s)
        return min(max(least_s, 3 * (self.seconds + 2.33 * self._variance)), most_s)
