"""Calls that come too often are made again: one that is refused with 429 was not begun, and a script of many commands
need not know of rate limits. Pauses grow, with jitter, so that commands side by side do not meet again and again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hawker.clock import Clock
from hawker.errors import RateLimited

T = TypeVar("T")

WITHIN_S = 120.0
_FIRST_S, _LONGEST_S, _GROWTH = 0.4, 3.0, 1.5


class RateLimitRetry:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns once it is not refused any more. Raises `RateLimited` after `WITHIN_S` seconds of
        refusals, and every other error of `attempt` at once."""
        deadline, pause_s = self._clock.monotonic() + WITHIN_S, _FIRST_S
        while True:
            wait_s = pause_s * (0.5 + self._clock.random())
            try:
                return await attempt()
            except RateLimited:
                if self._clock.monotonic() + wait_s > deadline:
                    raise
            await self._clock.sleep(wait_s)
            pause_s = min(pause_s * _GROWTH, _LONGEST_S)
