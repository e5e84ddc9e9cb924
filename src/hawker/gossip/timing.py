"""How long and how often: the protocol's figures, and the formulas that depend on the number of members. Pure.

Sources: SWIM (Das, Gupta, Motivala: "SWIM: Scalable Weakly-consistent Infection-style Process Group Membership
Protocol", DSN 2002) and Lifeguard (Dadgar, Phillips, Currey: "Lifeguard: Local Health Awareness for More Accurate
Failure Detection", DSN-W 2018, arXiv 1707.00788). The shape follows memberlist's `config.go`.
"""

import math

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
        """How many times each member sends one piece of news."""
        return self.transmit_factor * math.ceil(math.log10(members + 1))
