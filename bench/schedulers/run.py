"""One policy, one fleet, one stream of orders: built, played to the end, judged."""

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from bench.schedulers.central import Central, first_fit, spread
from bench.schedulers.costs import Costs
from bench.schedulers.courier import Courier
from bench.schedulers.fleet import Fleet, FleetPlan
from bench.schedulers.host import Host
from bench.schedulers.market import Market
from bench.schedulers.notary import Notary
from bench.schedulers.optimistic import Optimistic
from bench.schedulers.policy import Policy, Tools
from bench.schedulers.polling import Polling
from bench.schedulers.report import Report
from bench.schedulers.tally import Balance, Histogram, Tally
from bench.schedulers.timeline import Process, Timeline
from bench.schedulers.workload import Order
from hawker.clock import ManualClock
from hawker.market.preferences import Preferences, preferences

_SAMPLE_S = 30.0

POLICIES: Mapping[str, Callable[[Tools], Policy]] = {
    "polling": Polling,
    "first-fit": lambda tools: Central(tools, first_fit),
    "spread": lambda tools: Central(tools, spread),
    "optimistic": Optimistic,
    "market": Market,
}


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a planted bug replaces, and what the market's operator prefers."""

    preferences: Preferences = msgspec.field(default_factory=preferences)
    host: Callable[..., Host] = Host
    courier: Callable[..., Courier] = Courier
    fleet: Callable[..., Fleet] = Fleet


SOUND = Kit()


class Run:
    """`orders` must come by time and be numbered from 0 on."""

    def __init__(self, name: str, plan: FleetPlan, costs: Costs, seed: int, kit: Kit = SOUND) -> None:
        self.timeline = Timeline()
        self.hosts = plan.build(kit.host)
        self.notary = Notary(self.hosts)
        self.tally = Tally(self.timeline, self.notary)
        self.balance = Balance()
        self.fleet = kit.fleet(plan, self.hosts, costs, self.timeline, ManualClock(seed=seed), self.notary)
        chance = ManualClock(seed=seed + 1)
        courier = kit.courier(self.fleet, costs, self.timeline, chance, self.notary)
        self.policy = POLICIES[name](
            Tools(
                hosts=self.hosts,
                fleet=self.fleet,
                courier=courier,
                tally=self.tally,
                costs=costs,
                timeline=self.timeline,
                clock=chance,
                preferences=kit.preferences,
            )
        )
        self.fleet.watcher = self.policy
        self._name = name
        self._patience_s = costs.patience_s
        self._ordered = 0
        self._last_at_s: float | None = None

    def play(self, orders: Iterable[Order]) -> Report:
        """Until each order has its answer."""
        self.timeline.resume(self._arrive(orders))
        self.timeline.resume(self.fleet.fail_now_and_then())
        self.timeline.resume(self._look())
        while self._last_at_s is None:
            self.timeline.run(self.timeline.now + _SAMPLE_S)
        self.timeline.run(self._last_at_s + 3 * self._patience_s)
        self.notary.close(self._ordered)
        return self._report(self._last_at_s)

    def _arrive(self, orders: Iterable[Order]) -> Process[None]:
        for order in orders:
            if order.at_s > self.timeline.now:
                yield order.at_s - self.timeline.now
            self._ordered += 1
            self.policy.submit(order)
        self._last_at_s = self.timeline.now

    def _look(self) -> Process[None]:
        while self._last_at_s is None:
            yield _SAMPLE_S
            self.balance.sample(self.hosts)
            self.notary.inspect()

    def _report(self, seconds: float) -> Report:
        tally, even = self.tally, self.balance.mean()
        orders = max(1, self._ordered)
        return Report(
            policy=self._name,
            hosts=len(self.hosts),
            orders=self._ordered,
            placed=tally.placement.count,
            refused={why.value: count for why, count in sorted(tally.refusals.items())},
            avoidable=tally.avoidable,
            place_p50_ms=_ms(tally.placement, 50),
            place_p99_ms=_ms(tally.placement, 99),
            start_p50_ms=_ms(tally.start, 50),
            start_p99_ms=_ms(tally.start, 99),
            busy=round(even.busy, 4),
            variation=round(even.variation, 4),
            overworked=None if even.overworked is None else round(even.overworked, 3),
            pulled_gib=round(math.fsum(host.pulled_mib for host in self.hosts) / 1024, 1),
            looked=round(tally.looked / orders, 2),
            asked=round(tally.asked / orders, 2),
            background=round(self.policy.background(seconds) / orders, 2),
            conflicts=tally.conflicts,
            failures=self.fleet.failures,
            lost_with_hosts=self.notary.lost_with_hosts,
            virtual_s=round(seconds, 3),
            breaches=tuple(self.notary.breaches),
        )


def _ms(times: Histogram, percent: float) -> float | None:
    seconds = times.percentile(percent)
    return None if seconds is None else round(seconds * 1000, 3)
