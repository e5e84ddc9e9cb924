"""Times by the million in little memory: counted in steps of two percent, so a percentile is right to that."""

import math

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
