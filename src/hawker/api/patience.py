"""Waiting for one's turn: a call refused with 429 was not begun, so it is made again, and a script of many commands
need not know of rate limits. Pauses grow and differ, so that commands side by side do not meet again and again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hawker.clock import Clock
from hawker.errors import RateLimited

T = TypeVar("T")

WITHIN_S = 120.0
_FIRST_S, _LONGEST_S, _GROWTH = 0.4, 3.0, 1.5


async def patiently(attempt: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """What `attempt` gives once it is not refused any more. Raises `RateLimited` when that takes too long."""
    deadline, pause_s = clock.monotonic() + WITHIN_S, _FIRST_S
    while True:
        wait_s = pause_s * (0.5 + clock.random())
        try:
            return await attempt()
        except RateLimited:
            if clock.monotonic() + wait_s > deadline:
                raise
        await clock.sleep(wait_s)
        pause_s = min(pause_s * _GROWTH, _LONGEST_S)
