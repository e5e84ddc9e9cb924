"""The hosts, and what happens on them whoever decides: machines run and end, hosts fail and come back."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from bench.schedulers.costs import Costs
from bench.schedulers.host import Host
from bench.schedulers.notary import Notary
from bench.schedulers.timeline import Process, Timeline
from bench.schedulers.workload import Order
from hawker.clock import Clock


class Watcher(Protocol):
    """Who is told what happens on the hosts: at once of machines that ended, `detect_s` later of who is up."""

    def released(self, host: Host, order: Order) -> None: ...

    def noticed(self, host: Host) -> None:
        """That it is down, or is back."""


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Every fourth host is twice as large. `mtbf_s` is the mean time between failures of one host; that share of them
    is for good, after the others it is back after `repair_s` on average."""

    hosts: int = 100
    cpus: int = 64
    memory_mib: int = 32_768
    bandwidth_mib_s: float = 125.0
    cache_mib: int = 20_480
    mtbf_s: float = 200_000.0
    repair_s: float = 120.0
    for_good: float = 0.1

    def build(self, make: Callable[..., Host] = Host) -> list[Host]:
        return [self._host(make, number, 2 if number % 4 == 3 else 1) for number in range(self.hosts)]

    def _host(self, make: Callable[..., Host], number: int, times: int) -> Host:
        return make(
            number,
            cpus=self.cpus * times,
            memory_mib=self.memory_mib * times,
            bandwidth_mib_s=self.bandwidth_mib_s,
            cache_mib=self.cache_mib * times,
        )


class Fleet:
    def __init__(
        self, plan: FleetPlan, hosts: Sequence[Host], costs: Costs, timeline: Timeline, clock: Clock, notary: Notary
    ) -> None:
        self.hosts = hosts
        self.memory_mib = sum(host.memory_mib for host in hosts)
        self.failures = 0
        self.watcher: Watcher | None = None
        self._plan = plan
        self._costs = costs
        self._timeline = timeline
        self._clock = clock
        self._notary = notary

    def filled(self, host: Host, order: Order) -> float:
        """The host holds the order from now on; when its machine runs."""
        self._notary.filled(host, order)
        runs_at = host.pull(order, self._timeline.now)
        self._timeline.call(runs_at - self._timeline.now + order.lifetime_s, self.ended, host, order)
        return runs_at

    def ended(self, host: Host, order: Order) -> None:
        """A host that is down hears of it when it is back."""
        if host.up:
            self.drop(host, order)
        elif order.number in host.machines:
            host.overdue.append(order)

    def drop(self, host: Host, order: Order) -> None:
        if order.number in host.machines:
            host.release(order)
            self._notary.released(host, order)
            self._tell(lambda watcher: watcher.released(host, order))

    def cancel(self, host: Host, order: Order, ticket: int) -> None:
        """Who asked for it is told by the answer."""
        host.cancel(order, ticket)
        self._notary.released(host, order)

    def fail_now_and_then(self) -> Process[None]:
        """Hosts go down at random; those that are down already are spared."""
        if not self._plan.mtbf_s:
            return
        every_s = self._plan.mtbf_s / len(self.hosts)
        while True:
            yield -every_s * math.log(1 - self._clock.random())
            host = self.hosts[int(self._clock.random() * len(self.hosts))]
            if host.up:
                self.fail(host, for_good=self._clock.random() < self._plan.for_good)

    def fail(self, host: Host, *, for_good: bool) -> None:
        self.failures += 1
        host.up = False
        self._timeline.call(self._costs.detect_s, self._notice, host)
        if for_good:
            self._notary.lost(host)
        else:
            repair_s = -self._plan.repair_s * math.log(1 - self._clock.random())
            self._timeline.call(repair_s, self.come_back, host)

    def come_back(self, host: Host) -> None:
        """With all its records; machines that ended meanwhile are cleared away first."""
        host.up = True
        self._notary.back(host)
        overdue, host.overdue = host.overdue, []
        for order in overdue:
            self.drop(host, order)
        self._timeline.call(self._costs.detect_s, self._notice, host)

    def _notice(self, host: Host) -> None:
        self._tell(lambda watcher: watcher.noticed(host))

    def _tell(self, what: Callable[[Watcher], None]) -> None:
        if self.watcher is not None:
            what(self.watcher)
