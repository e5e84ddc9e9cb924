"""Token buckets: how much may pass a second in the long run, and how much at once. Pure: `now` in seconds comes from
outside and never goes back.

A bucket is kept as the moment when it is full again (the generic cell rate algorithm, ITU-T I.371), so it needs no
refilling.
"""

from collections import OrderedDict

from hawker.value_object import ValueObject

MOST = 10_000
_ROUNDING_S = 1e-6
_LOOKS = 4  # at the oldest, for each call: what comes in by one goes out by more


class Allowance(ValueObject, frozen=True):
    """The tokens that a bucket gives: so many a second in the long run, and up to `burst` at once after a wait; both
    are above 0."""

    per_s: float
    """Tokens that come back in a second."""
    burst: float

    def full_at(self, was_full_at: float, now: float, amount: float) -> float | None:
        """The moment at which a bucket is full again once `amount` is taken now; None when that does not fit. An amount
        above the burst fits a full bucket, and leaves a debt."""
        full_at = max(was_full_at, now)
        if full_at - now > (self.burst - min(amount, self.burst)) / self.per_s + _ROUNDING_S:
            return None
        return full_at + amount / self.per_s


class TokenBucket:
    """One bucket of tokens, full at first."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._full_at = float("-inf")

    def take(self, amount: float, now: float) -> bool:
        """Whether `amount` tokens were there, which are taken then; refusing costs none."""
        full_at = self._allowance.full_at(self._full_at, now, amount)
        if full_at is None:
            return False
        self._full_at = full_at
        return True

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` would fit, if nothing else is taken."""
        rest = max(0.0, self._allowance.burst - amount)
        return max(0.0, self._full_at - now - rest / self._allowance.per_s)


class TokenBuckets:
    """A bucket for each key, in bounded memory: one that is full says nothing and is forgotten; above `most`, the one
    that was used longest ago is. Whoever makes up keys only pushes out buckets that are nearly full: none lives longer
    than it takes to fill."""

    def __init__(self, allowance: Allowance, most: int = MOST) -> None:
        self._allowance = allowance
        self._most = most
        self._full_at: OrderedDict[bytes, float] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: bytes, now: float, amount: float = 1) -> bool:
        """Whether `amount` tokens were there, which are taken then; refusing costs none."""
        self._forget(now)
        full_at = self._allowance.full_at(self._full_at.get(key, now), now, amount)
        if full_at is None:
            return False
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return True

    def wait_s(self, key: bytes, now: float, amount: float = 1) -> float:
        """Seconds until `amount` would fit, if nothing else is taken."""
        rest_s = max(0.0, self._allowance.burst - amount) / self._allowance.per_s
        return max(0.0, self._full_at.get(key, now) - now - rest_s)

    def _forget(self, now: float) -> None:
        for _ in range(_LOOKS):
            oldest = next(iter(self._full_at), None)
            if oldest is None or self._full_at[oldest] > now:
                return
            del self._full_at[oldest]
