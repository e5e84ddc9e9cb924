"""Rate limits (contract 1.0): each action on each machine, or each app where no machine is named, by itself.

Kept in memory, for this process's callers only: a daemon that starts anew begins with full buckets.
"""

import hashlib
from collections.abc import Callable, Mapping

from hawker.api.route import AnyRoute, Rate, rate_of, subject_of
from hawker.clock import Clock
from hawker.errors import RateLimited
from hawker.token_bucket import MOST, TokenBuckets

TEXT = "rate limit exceeded"


class RateLimits:
    """Keeps `api.endpoints.Limiter`. `refused` is told the method and the path of the route of what was refused;
    `spares_root`: the root token's calls pass, and are not counted."""

    def __init__(
        self, clock: Clock, refused: Callable[[str, str], None], *, most: int = MOST, spares_root: bool = False
    ) -> None:
        self._clock = clock
        self._refused = refused
        self._spares_root = spares_root
        self._buckets = {rate: TokenBuckets(rate.value, most) for rate in Rate if rate is not Rate.NONE}

    def spend(self, route: AnyRoute, params: Mapping[str, str], *, root: bool = False) -> None:
        """Counts a call. Raises `RateLimited`, which no action has seen anything of."""
        rate, subject = rate_of(route), subject_of(route, params)
        if rate is Rate.NONE or subject is None or (root and self._spares_root):
            return
        buckets, key, now = self._buckets[rate], _key(route.name, *subject), self._clock.monotonic()
        if not buckets.take(key, now):
            self._refused(route.method, route.path)
            raise RateLimited(TEXT, wait_s=buckets.wait_s(key, now))


def _key(*parts: str) -> bytes:
    """Of one size, however long the names in a path are."""
    return hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).digest()
