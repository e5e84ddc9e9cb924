"""Waiting for the end of a process that may not be our child, and making an end of it."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

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


async def end(pid: int, is_it: Callable[[], bool]) -> None:
    """Send SIGKILL to the process that is meant, and to no other, and return when it has ended. `is_it` as in
    `ended`."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_it():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            await anyio.wait_readable(fd)
    finally:
        os.close(fd)
