"""Orders at random, with the distributions that fleets show: Poisson arrivals with bursts on top, lifetimes with a
heavy tail (bounded Pareto), images by Zipf, sizes from a table. The same seed gives the same orders to every policy.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

import msgspec

from hawker.clock import ManualClock
from hawker.sim.schedulers.order import Order

Size = tuple[int, int, float]
"""Cpus, MiB of memory, how often."""

SIZES: tuple[Size, ...] = (
    (1, 256, 0.25),
    (1, 512, 0.25),
    (1, 1024, 0.2),
    (2, 2048, 0.15),
    (4, 4096, 0.1),
    (8, 8192, 0.05),
)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """`load` is the memory in use, as a share of the fleet's, to which arrivals would drive it in the long run; with a
    heavy tail that is long, so a run begins on an empty fleet and goes through all loads up to nearly full.

    A burst brings `burst_orders` of one image within `burst_s`; that share of all orders comes in bursts. Lifetimes lie
    between the two bounds; the smaller `tail` is, the heavier the tail. Images are `zipf` distributed."""

    orders: int = 5000
    seed: int = 1
    load: float = 1.2
    burst_share: float = 0.2
    burst_orders: int = 50
    burst_s: float = 5.0
    shortest_s: float = 600.0
    longest_s: float = 86_400.0
    tail: float = 1.4
    images: int = 1000
    zipf: float = 1.1
    sizes: tuple[Size, ...] = SIZES

    def mean_lifetime_s(self) -> float:
        """Of a bounded Pareto distribution."""
        ratio = self.shortest_s / self.longest_s
        whole = self.shortest_s * self.tail / (self.tail - 1)
        return float(whole * (1 - ratio ** (self.tail - 1)) / (1 - ratio**self.tail))

    def mean_memory_mib(self) -> float:
        return sum(memory * share for _, memory, share in self.sizes) / sum(share for _, _, share in self.sizes)

    def rate(self, fleet_memory_mib: int) -> float:
        """Orders a second."""
        return self.load * fleet_memory_mib / (self.mean_memory_mib() * self.mean_lifetime_s())


def orders(workload: Workload, fleet_memory_mib: int) -> Iterator[Order]:
    """By the time at which they come. A burst is one app that wants many machines at once."""
    random = ManualClock(seed=workload.seed).random
    draw = _Draw(workload, random)
    alone_s = 1 / (workload.rate(fleet_memory_mib) * (1 - workload.burst_share + 1e-9))
    between_s = workload.burst_orders / (workload.rate(fleet_memory_mib) * max(workload.burst_share, 1e-9))
    within_s = workload.burst_s / workload.burst_orders
    next_alone, next_burst, left, image = _wait(random, alone_s), _wait(random, between_s), 0, 0
    for number in range(workload.orders):
        if next_alone <= next_burst:
            yield draw.order(number, next_alone, draw.image())
            next_alone += _wait(random, alone_s)
            continue
        if left == 0:
            left, image = workload.burst_orders, draw.image()
        yield draw.order(number, next_burst, image)
        left -= 1
        next_burst += _wait(random, within_s if left else between_s)


def _wait(random: Callable[[], float], mean_s: float) -> float:
    return -mean_s * math.log(1 - random())


class _Draw:
    def __init__(self, workload: Workload, random: Callable[[], float]) -> None:
        self._random = random
        self._sizes = workload.sizes
        self._often = _cumulated([share for _, _, share in workload.sizes])
        self._popular = _cumulated([1 / rank**workload.zipf for rank in range(1, workload.images + 1)])
        self._image_mib = [self._weight_of_image() for _ in range(workload.images)]
        self._shortest_s, self._tail = workload.shortest_s, workload.tail
        self._cut = 1 - (workload.shortest_s / workload.longest_s) ** workload.tail

    def _weight_of_image(self) -> int:
        """From 32 MiB to 2 GiB, as many between 32 and 64 as between 1,024 and 2,048."""
        return int(32 * 2 ** (6 * self._random()))

    def image(self) -> int:
        return bisect_left(self._popular, self._random())

    def order(self, number: int, at_s: float, image: int) -> Order:
        cpus, memory_mib, _ = self._sizes[bisect_left(self._often, self._random())]
        return Order(
            number=number,
            at_s=at_s,
            cpus=cpus,
            memory_mib=memory_mib,
            lifetime_s=self._shortest_s * (1 - self._random() * self._cut) ** (-1 / self._tail),
            image=image,
            image_mib=self._image_mib[image],
        )


def _cumulated(weights: list[float]) -> list[float]:
    """Ends with 1, whatever rounding did to the sum."""
    sums = list(accumulate(weights))
    return [*(each / sums[-1] for each in sums[:-1]), 1.0]
