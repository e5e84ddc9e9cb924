"""Token buckets of one size, in bounded memory. Pure: keys and `now` in, yes or no out.

A bucket is kept as the moment when it is full again (the generic cell rate algorithm, ITU-T I.371), so it needs no
refilling. One that is full says nothing and is forgotten; above `most`, the one that was used longest ago is.
"""

from collections import OrderedDict

from hawker.api.rate import Allowance

MOST = 10_000
_ROUNDING_S = 1e-6
_LOOKS = 4  # at the oldest, for each call: what comes in by one goes out by more


class Buckets:
    """Whoever makes up keys only pushes out buckets that are nearly full: none lives longer than it takes to fill."""

    def __init__(self, allowance: Allowance, most: int = MOST) -> None:
        self._gap_s = 1 / allowance.per_s
        self._slack_s = (allowance.burst - 1) * self._gap_s + _ROUNDING_S
        self._most = most
        self._full_at: OrderedDict[bytes, float] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: bytes, now: float) -> bool:
        """Whether there was a token; refusing costs none. `now` is in seconds and never goes back."""
        self._forget(now)
        full_at = max(self._full_at.get(key, now), now)
        if full_at - now > self._slack_s:
            return False
        self._full_at[key] = full_at + self._gap_s
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return True

    def _forget(self, now: float) -> None:
        for _ in range(_LOOKS):
            oldest = next(iter(self._full_at), None)
            if oldest is None or self._full_at[oldest] > now:
                return
            del self._full_at[oldest]
