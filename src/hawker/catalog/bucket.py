"""A token bucket: how much may go through per second, and how much at once."""

from hawker.clock import Clock


class Bucket:
    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._clock, self._per_s, self._burst = clock, per_s, burst
        self._left = burst
        self._at = clock.monotonic()

    def take(self, amount: float) -> bool:
        """Whether it fits now. What is larger than the burst fits a full bucket, and leaves a debt."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < min(amount, self._burst):
            return False
        self._left -= amount
        return True

    def wait_s(self, amount: float) -> float:
        """How long until it would fit, if nothing else goes through."""
        return max(0.0, (min(amount, self._burst) - self._left) / self._per_s)
