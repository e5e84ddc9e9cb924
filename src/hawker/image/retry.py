"""Trying again what a registry could not do just now: capped, jittered, and as late as the registry asks for."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hawker.clock import Clock
from hawker.errors import Unavailable

T = TypeVar("T")

_TRIES = 5
_FIRST_S = 0.3
_LONGEST_S = 15.0


class TryLater(Exception):
    """The registry or the way to it failed for now. `progressed`: some of the content came, so count anew."""

    def __init__(self, reason: str, *, after_s: float | None = None, progressed: bool = False) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.progressed = progressed


async def persist(clock: Clock, doing: str, call: Callable[[], Awaitable[T]]) -> T:
    """The call's answer. Raises `Unavailable` with the last reason after five tries in a row without progress."""
    failed = 0
    while True:
        try:
            return await call()
        except TryLater as error:
            failed = 1 if error.progressed else failed + 1
            if failed >= _TRIES:
                raise Unavailable(f"{doing}: {error}") from error
            await clock.sleep(_wait_s(failed, error.after_s, clock.random()))


def _wait_s(failed: int, asked_s: float | None, jitter: float) -> float:
    own: float = _FIRST_S * 2 ** (failed - 1)
    return min(_LONGEST_S, max(own, asked_s or 0.0)) * (0.75 + jitter / 4)
