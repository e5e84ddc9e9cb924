"""The only source of time and randomness. Product code takes a `Clock`; tests pass `ManualClock`.

anyio is imported by who sleeps: a command that asks for the time alone answers before an event loop is loaded.
"""

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hawker.deferred import deferred

if TYPE_CHECKING:
    import anyio
    from anyio import lowlevel
else:
    anyio = deferred("anyio")
    lowlevel = deferred("anyio.lowlevel")


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, random bytes for ids and jitter."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary point; never goes back."""

    async def sleep(self, seconds: float) -> None: ...

    def random(self) -> float:
        """Uniform in [0, 1)."""

    def token_bytes(self, count: int) -> bytes: ...


class SystemClock:
    """The host's clocks and the kernel's random bytes: its own functions, without a call between."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    random = staticmethod(random.random)
    token_bytes = staticmethod(os.urandom)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class PooledClock(SystemClock):
    """The clock of `SystemClock` for a process that draws a few bytes for each request and never forks. It asks the
    kernel for at least 4 KiB of random bytes at a time, and uses each byte once."""

    def __init__(self) -> None:
        self._pool, self._used = b"", 0

    def token_bytes(self, count: int) -> bytes:
        begin, end = self._used, self._used + count
        if end > len(self._pool):
            self._pool = os.urandom(max(count, _POOLED_BYTES))
            begin, end = 0, count
        self._used = end
        return self._pool[begin:end]


_POOLED_BYTES = 4 << 10


class ShiftedClock(SystemClock):
    """The host's clocks, with wall time moved by as many seconds as a file says now: how a test makes the clock of a
    living daemon jump. Monotonic time goes on, as it does when an operator or NTP sets the clock."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> float:
        return super().now() + self._offset_s()

    def _offset_s(self) -> float:
        try:
            return float(self._file.read_text())
        except (OSError, ValueError):
            return 0.0


OFFSET_VARIABLE = "HAWKER_CLOCK_OFFSET_FILE"


def system_clock(environ: Mapping[str, str]) -> SystemClock:
    """The clock of a daemon. Only a test sets `HAWKER_CLOCK_OFFSET_FILE`; without it nothing is read."""
    file = environ.get(OFFSET_VARIABLE)
    return ShiftedClock(Path(file)) if file else SystemClock()


class ManualClock:
    """Time that moves when told to, and seeded randomness. `sleep` advances the time at once and yields."""

    def __init__(self, start: float = 1_700_000_000.0, seed: int = 0) -> None:
        self._now = start
        self._random = random.Random(seed)

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
        await lowlevel.checkpoint()

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
