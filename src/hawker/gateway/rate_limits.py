"""Rate limits (contract 1.0): each action on each machine, or each app where no machine is named, by itself.

Kept in memory, for this process's callers only: a daemon that starts anew begins with full buckets.
"""

import hashlib
from collections.abc import Callable, Mapping

from hawker.api.rate import Rate
from hawker.api.route import AnyRoute, rate_of, subject_of
from hawker.clock import Clock
from hawker.errors import RateLimited
from hawker.token_bucket import MOST, TokenBuckets

TEXT = "rate limit exceeded"


class RateLimits:
    """Keeps `api.endpoints.Limiter`. `refused` is told the method and the path of the route of what was refused."""

    def __init__(self, clock: Clock, refused: Callable[[str, str], None], *, most: int = MOST) -> None:
        self._clock = clock
        self._refused = refused
        self._buckets = {rate: TokenBuckets(rate.value, most) for rate in Rate if rate is not Rate.NONE}

    def spend(self, route: AnyRoute, params: Mapping[str, str]) -> None:
        """Raises `RateLimited`, which no action has seen anything of."""
        rate, subject = rate_of(route), subject_of(route, params)
        if rate is Rate.NONE or subject is None:
            return
        if not self._buckets[rate].take(_key(route.name, *subject), self._clock.monotonic()):
            self._refused(route.method, route.path)
            raise RateLimited(TEXT)


def _key(*parts: str) -> bytes:
    """Of one size, however long the names in a path are."""
    return hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).digest()
