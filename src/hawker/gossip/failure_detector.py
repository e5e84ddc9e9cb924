"""The failure detector's values: local health, suspicions, the open probe, indirect pings, round trips; and its timing:
how long and how often, by the protocol's figures and the formulas that depend on the number of members. Pure.

Sources: SWIM (Das, Gupta, Motivala: "SWIM: Scalable Weakly-consistent Infection-style Process Group Membership
Protocol", DSN 2002) and Lifeguard (Dadgar, Phillips, Currey: "Lifeguard: Local Health Awareness for More Accurate
Failure Detection", DSN-W 2018, arXiv 1707.00788). The shape follows memberlist's `config.go`.
"""

import math
from collections.abc import Iterator

from hawker.ids import NodeId
from hawker.value_object import ValueObject


class Timing(ValueObject, frozen=True, kw_only=True):
    """All fields are 0 or more; names in `_s` are seconds. All members of a cluster should use the same figures.
    `health_most` 0, `confirmations` 0 and `suspicion_stretch` 1 together are SWIM without Lifeguard."""

    # Probing: each period one member is pinged, in a random round robin (SWIM, 4.3).

    probe_s: float = 1.0
    """Seconds from one probe to the next, and the longest time to wait for its answers. Shorter finds dead members
    sooner and costs more datagrams. Multiplied by the local health multiplier (Lifeguard, LHA-Probe)."""

    direct_s: float = 0.3
    """Seconds to wait for a direct ack of a member of the own region whose round trip is not known, before others are
    asked to ping it; with a known round trip `RoundTrip.timeout_s`, at most twice this."""

    direct_far_s: float = 0.8
    """`direct_s` for a member of another region."""

    direct_least_s: float = 0.1
    """Seconds; the shortest wait for a direct ack, however short the measured round trip is, so that one late wake-up
    of a process does not start indirect pings."""

    relays: int = 3
    """Members that are asked to ping the silent one (SWIM's k). More of them tolerate more loss; 0 leaves only the
    fallback ping over a stream."""

    nack_after: float = 0.8
    """Share of `direct_s`, 0 to 1, after which a relay that has no ack yet answers with a nack (Lifeguard): it tells
    the prober that its own link works. Above 1 the nack would come after the probe has ended."""

    # Suspicion: the time that a suspect has to refute before it is declared down (SWIM, 4.2; Lifeguard, LHA-Suspicion).

    suspicion_factor: float = 4.0
    """Shortest suspicion time: `suspicion_factor * max(1, log10(members)) * probe_s` seconds. Higher gives fewer false
    deaths and finds real ones later."""

    suspicion_stretch: float = 6.0
    """Longest suspicion time as a multiple of the shortest, 1 or more: what a suspect has while one member accuses it.
    It falls towards the shortest with the logarithm of the confirmations. 1 means that confirmations do not matter."""

    suspicion_far: float = 1.5
    """Factor, 1 or more, on the probe period and on the suspicion time of a member of another region."""

    confirmations: int = 2
    """Other members whose accusation brings the suspicion time down to the shortest (Lifeguard's K). 0 in a cluster
    that has not so many other members: then the shortest time holds at once."""

    health_most: int = 8
    """Highest score of local health, so the local health multiplier is 1 to `health_most + 1` (Lifeguard's S). It grows
    with each probe that fails by this node's own fault and stretches all its timeouts. 0 switches it off."""

    # Gossip: news that is passed on beside the probes.

    gossip_s: float = 0.2
    """Seconds between two rounds of gossip while there is news; no round is sent without any."""

    gossip_peers: int = 3
    """Members that one round is sent to, chosen at random. More spread faster at the cost of datagrams."""

    transmit_factor: int = 4
    """Each piece of news is sent `transmit_factor * ceil(log10(members + 1))` times by each member (SWIM's lambda)."""

    # Upkeep.

    upkeep_s: float = 1.0
    """Seconds between two rounds of upkeep: asking for missing metas, pinging the dead, removing the long dead."""

    reach_s: float = 5.0
    """Seconds, on average, between two pings of a member that is down, so that both sides of a healed partition meet
    again. Drawn from 0.5 to 1.5 times this."""

    sync_s: float = 10.0
    """Shortest time in seconds between two full exchanges of state that this node begins because a digest differs."""

    join_s: float = 1.0
    """Seconds until the seeds are asked again; grows by half each time, up to 10 s."""

    stall_s: float = 1.0
    """Seconds by which a tick may be late before this node concludes that it stood still itself: then open suspicions
    get the lost time back, and local health gets worse by one a second."""

    skew_s: float = 60.0
    """Seconds between two wall clocks above which a `skew` trouble is told. Only a warning: the protocol uses
    monotonic time."""

    remembered_s: float = 48 * 3600.0
    """Seconds for which a member that is down or left is remembered. Shorter than a partition may last means that the
    two sides need a seed to find each other again."""

    members_most: int = 10_000
    """Bound of the member list and of the fences, against made-up members. A claim about one more is ignored."""

    def suspicion_s(self, members: int, *, far: bool = False) -> tuple[float, float]:
        """Shortest and longest suspicion time, both in seconds: with enough confirmations, and with one accuser."""
        least = self.suspicion_factor * max(1.0, math.log10(max(1, members))) * self.probe_s
        least *= self.suspicion_far if far else 1.0
        return least, least * self.suspicion_stretch

    def confirmations_of(self, members: int) -> int:
        """Confirmations needed for the shortest time in a cluster of so many living members, this node included."""
        return self.confirmations if members - 2 >= self.confirmations else 0

    def transmits(self, members: int) -> int:
        """The number of times that each member sends one piece of news."""
        return self.transmit_factor * math.ceil(math.log10(members + 1))


_REPROBES = 3
_RELAYS = 1024


class LocalHealth:
    """The health of this node itself, so that a slow node does not accuse others (Lifeguard, LHA-Probe). `score` is 0
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
        """The moment at which the suspect itself is pinged once more: up to three times, `every_s` apart, in the last
        seconds before it is due, because its refutation may have been lost on the way here. Infinite after the
        third."""
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
