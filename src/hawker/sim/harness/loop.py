"""An event loop in virtual time: when nothing can go on, time goes to the next moment that something waits for.

Deadlines, sleeps and timeouts of anyio all follow it, so an hour passes at once and in the same order every time.
Threads are waited for in real time. A loop in which everything waits for ever says so instead of hanging.
"""

import asyncio
import random
import selectors
from collections.abc import Callable

import anyio
import anyio.to_thread

from hawker.clock import Clock
from hawker.fair.threads import at_work

_NOW = 1_700_000_000.0
_THREAD_S = 0.02
_PATIENCE_S = 30.0
_EVERY_S = 0.01


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits while there is a timer to jump to."""

    def __init__(self, patience_s: float) -> None:
        super().__init__()
        self._patience_s = patience_s
        self.elapsed_s = 0.0
        self.threads: anyio.CapacityLimiter | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if at_work() if self.threads is None else self.threads.borrowed_tokens:
            return super().select(_THREAD_S)
        if timeout is None:
            if not (ready := super().select(self._patience_s)):
                raise RuntimeError("everything waits for ever")
            return ready
        self.elapsed_s += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`patience_s` is how long, in real time, it waits for somebody outside when nothing is left to do."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._virtual = _JumpingSelector(patience_s)
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.elapsed_s

    def mind_threads(self) -> None:
        """From now on time stands still while a thread works. Called inside the loop."""
        self._virtual.threads = anyio.to_thread.current_default_thread_limiter()


class LoopClock:
    """Keeps `hawker.clock.Clock` by the running loop's time, with seeded randomness."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.ahead_s = 0.0  # of where the wall clock would be, had nobody set it

    def now(self) -> float:
        return _NOW + self.ahead_s + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


async def eventually(
    clock: Clock, condition: Callable[[], object], timeout_s: float, every_s: float = _EVERY_S
) -> None:
    """Until the condition holds, asked now and then. Raises `TimeoutError`."""
    with anyio.move_on_after(timeout_s):
        while not condition():
            await clock.sleep(every_s)
        return
    raise TimeoutError(f"not true within {timeout_s:g} s")
