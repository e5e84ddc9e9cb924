"""What became of the orders, how long they took, how evenly hosts are used, and what it cost to decide it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.schedulers.host import Host
from bench.schedulers.notary import Notary
from bench.schedulers.timeline import Timeline
from bench.schedulers.workload import Order

_STEP = math.log(1.02)
_SMALLEST_S = 1e-5
_STEPS = 1024  # up to about two hours


class Histogram:
    def __init__(self) -> None:
        self._counts = [0] * _STEPS
        self.count = 0
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        step = int(math.log(max(seconds, _SMALLEST_S) / _SMALLEST_S) / _STEP)
        self._counts[min(step, _STEPS - 1)] += 1
        self.count += 1
        self.sum_s += seconds

    def percentile(self, percent: float) -> float | None:
        """Seconds that so many of a hundred did not take longer than; None when there are none."""
        wanted, passed = math.ceil(self.count * percent / 100), 0
        if not self.count:
            return None
        for step, count in enumerate(self._counts):
            passed += count
            if passed >= wanted:
                return _SMALLEST_S * math.exp((step + 0.5) * _STEP)
        return _SMALLEST_S * math.exp(_STEPS * _STEP)


_MOST = 256


@dataclass(frozen=True, slots=True)
class Evenness:
    """`busy` is the mean share of the scarcest resource that is sold; `variation` its coefficient of variation across
    hosts; `overworked` the p99 against the p50, None where half of the hosts are idle."""

    busy: float
    variation: float
    overworked: float | None


def evenness(busy: Sequence[float]) -> Evenness:
    if not busy:
        return Evenness(0.0, 0.0, None)
    ordered, mean = sorted(busy), math.fsum(busy) / len(busy)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in busy) / len(busy))
    middle, high = ordered[(len(ordered) - 1) // 2], ordered[math.ceil(0.99 * len(ordered)) - 1]
    return Evenness(mean, spread / mean if mean else 0.0, high / middle if middle else None)


class Balance:
    """Bounded: when there are many samples, every second one is dropped, and from then on fewer are kept."""

    def __init__(self) -> None:
        self._samples: list[Evenness] = []
        self._every = 1
        self._seen = 0

    @property
    def kept(self) -> int:
        return len(self._samples)

    def sample(self, hosts: Sequence[Host]) -> None:
        if self._seen % self._every == 0:
            self._samples.append(evenness([host.busy() for host in hosts if host.up]))
            if len(self._samples) > _MOST:
                self._samples, self._every = self._samples[::2], self._every * 2
        self._seen += 1

    def mean(self) -> Evenness:
        later = self._samples[len(self._samples) // 2 :]
        if not later:
            return Evenness(0.0, 0.0, None)
        ratios = [each.overworked for each in later if each.overworked is not None]
        return Evenness(
            math.fsum(each.busy for each in later) / len(later),
            math.fsum(each.variation for each in later) / len(later),
            math.fsum(ratios) / len(ratios) if len(ratios) == len(later) else None,
        )


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
