"""Waiting for a guest to follow its balloon."""

from collections.abc import Awaitable, Callable

import anyio

from hawker.clock import Clock
from hawker.errors import Unavailable

FOLLOWS_S = 15.0  # for the guest to give memory back, or to take it
_LOOK_EVERY_S = 0.05


async def followed(
    actual: Callable[[], Awaitable[int]], before: int, wanted: int, guest_mib: int, clock: Clock
) -> None:
    """Return once what `actual` says, in any unit, has come from `before` to `wanted`, or past it: a guest gives and
    takes by whole pages. Raises `Unavailable`."""
    try:
        with anyio.fail_after(FOLLOWS_S):
            while not _is_there(before, wanted, await actual()):
                await clock.sleep(_LOOK_EVERY_S)
    except TimeoutError as error:
        text = f"the guest has not gone to {guest_mib} MB of memory within {FOLLOWS_S:g} s"
        raise Unavailable(text) from error


def _is_there(before: int, wanted: int, actual: int) -> bool:
    return actual <= wanted if wanted <= before else actual >= wanted
