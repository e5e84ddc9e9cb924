"""How evenly hosts are used: looked at now and then, judged at the end by the second half, when the fleet is full."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hawker.sim.schedulers.host import Host

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
