"""Waiting for the end of a process that may not be our child."""

import os
from collections.abc import Callable

import anyio


async def ended(pid: int, is_it: Callable[[], bool]) -> None:
    """Return when the process has ended. `is_it` says, asked once the process can no longer be confused with another,
    whether `pid` still was the one that is meant; if not, it has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_it():
            await anyio.wait_readable(fd)
    finally:
        os.close(fd)
