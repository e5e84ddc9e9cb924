"""What a policy is, and what all of them are built with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.schedulers.costs import Costs
from bench.schedulers.courier import Courier
from bench.schedulers.fleet import Fleet, Watcher
from bench.schedulers.host import Host
from bench.schedulers.tally import Refusal, Tally
from bench.schedulers.timeline import Timeline
from bench.schedulers.workload import Order
from hawker.clock import Clock
from hawker.market.preferences import Preferences


class Policy(Watcher, Protocol):
    """Answers every order once, through the desk of its tools, whatever happens."""

    def submit(self, order: Order) -> None:
        """An order came, now."""

    def background(self, seconds: float) -> int:
        """How many messages it takes in that time beside those that are sent for an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    hosts: Sequence[Host]
    fleet: Fleet
    courier: Courier
    tally: Tally
    costs: Costs
    timeline: Timeline
    clock: Clock
    preferences: Preferences

    def is_late(self, order: Order) -> bool:
        return self.timeline.now - order.at_s > self.costs.patience_s

    def refuse(self, order: Order, why: Refusal) -> None:
        avoidable = any(host.up and host.fits(order) for host in self.hosts)
        self.tally.refused(order, why, avoidable=avoidable)
