"""How long and how often: the protocol's figures, and the formulas that hang on the number of members. Pure.

Sources: SWIM (Das, Gupta, Motivala 2002), Lifeguard (Dadgar, Phillips, Currey 2017, arXiv 1707.00788).
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds and counts. `far` is for members of other regions. `health_most` 0, `confirmations` 0 and
    `suspicion_stretch` 1 together are SWIM without Lifeguard."""

    probe_s: float = 1.0
    direct_s: float = 0.3
    direct_far_s: float = 0.8
    direct_least_s: float = 0.1
    relays: int = 3
    nack_after: float = 0.8  # of the time for a direct answer
    suspicion_factor: float = 4.0
    suspicion_stretch: float = 6.0
    suspicion_far: float = 1.5
    confirmations: int = 2
    health_most: int = 8
    gossip_s: float = 0.2
    gossip_peers: int = 3
    transmit_factor: int = 4
    upkeep_s: float = 1.0
    reach_s: float = 5.0  # how often one of those that are down is tried
    sync_s: float = 10.0  # how often, at most, all that is believed is exchanged with one peer
    join_s: float = 1.0
    stall_s: float = 1.0
    skew_s: float = 60.0
    remembered_s: float = 48 * 3600.0
    members_most: int = 10_000

    def suspicion_s(self, members: int, *, far: bool = False) -> tuple[float, float]:
        """How long a suspect has to refute: at least, when many accuse it, and at most, when one does."""
        least = self.suspicion_factor * max(1.0, math.log10(max(1, members))) * self.probe_s
        least *= self.suspicion_far if far else 1.0
        return least, least * self.suspicion_stretch

    def confirmations_of(self, members: int) -> int:
        """How many others must accuse the same for the shortest time; none where there are not enough of them."""
        return self.confirmations if members - 2 >= self.confirmations else 0

    def transmits(self, members: int) -> int:
        """How often each member passes on a piece of news."""
        return self.transmit_factor * math.ceil(math.log10(members + 1))
