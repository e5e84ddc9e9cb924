"""What became of the orders, and what it cost to decide it."""

from collections import Counter
from enum import StrEnum

from hawker.sim.schedulers.histogram import Histogram
from hawker.sim.schedulers.host import Host
from hawker.sim.schedulers.notary import Notary
from hawker.sim.schedulers.order import Order
from hawker.sim.schedulers.timeline import Timeline


class Refusal(StrEnum):
    NO_ROOM = "no room"  # whoever was asked said no; for a sample this can be wrong
    TOO_LATE = "too late"  # still waiting when its time was over
    CONFLICTS = "conflicts"  # others were faster, again and again
    IN_DOUBT = "in doubt"  # sent, not answered, and the host is down: nobody knows


class Tally:
    """Work is counted over all orders: `looked` are hosts that a scheduler read in its own memory or table, `asked`
    those that it sent a message for a decision. `avoidable` refusals are those while some host had the room."""

    def __init__(self, timeline: Timeline, notary: Notary) -> None:
        self.placement = Histogram()
        self.start = Histogram()
        self.refusals: Counter[Refusal] = Counter()
        self.avoidable = 0
        self.looked = 0
        self.asked = 0
        self.conflicts = 0
        self._timeline = timeline
        self._notary = notary

    def decided(self, *, looked: int = 0, asked: int = 0) -> None:
        self.looked += looked
        self.asked += asked

    def placed(self, host: Host, order: Order, runs_at_s: float) -> None:
        """Acknowledged now; it runs when its image is there."""
        self._notary.acknowledged(host, order)
        self.placement.add(self._timeline.now - order.at_s)
        self.start.add(max(runs_at_s, self._timeline.now) - order.at_s)

    def refused(self, order: Order, why: Refusal, *, avoidable: bool) -> None:
        self._notary.refused(order)
        self.refusals[why] += 1
        self.avoidable += avoidable
