"""The only source of time and randomness. Product code takes a `Clock`; tests pass `ManualClock`."""

import os
import random
import time
from typing import Protocol

import anyio


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
    """The host's clocks and the kernel's random bytes."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def random(self) -> float:
        return random.random()

    def token_bytes(self, count: int) -> bytes:
        return os.urandom(count)


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
        await anyio.lowlevel.checkpoint()

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
