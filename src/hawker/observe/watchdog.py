"""A thread that watches the event loop: how long it lets a call wait, whether it has stalled, and where.

A loop that has stalled for too long will hardly come back, and a new daemon takes up everything; so the process ends.
Only time in which the watching thread ran as well counts: when the whole process stood still (SIGSTOP, a paused virtual
machine), the loop is not to blame. The thread itself never logs: a loop that is stuck in writing a log line holds the
lock that logging needs.
"""

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from threading import Event, Thread, get_ident
from typing import assert_never

from hawker import log
from hawker.clock import Clock
from hawker.observe.metrics import LoopMetrics
from hawker.value_object import ValueObject


class StallLimits(ValueObject, frozen=True, kw_only=True):
    """The limits of a stall in seconds, 0 or more: a loop that has not turned for `report_s` is told in the log, after
    `end_s` the process is ended. 0 switches one off."""

    report_s: float
    end_s: float

    @property
    def tick_s(self) -> float:
        """The seconds between two looks, so that a stall is seen in good time."""
        return min([0.25, *(limit / 4 for limit in (self.report_s, self.end_s) if limit > 0)])


class StallVerdict(Enum):
    FINE = "fine"
    STALLED = "stalled"  # for `report_s` now
    STILL = "still"  # for twice as long as when it was last said
    OVER = "over"  # it turns again, after a stall that was reported
    END = "end"


class StallSighting(ValueObject, frozen=True):
    """`seconds` is how long the loop has not turned, or had not when it is over."""

    verdict: StallVerdict
    seconds: float


class StallDetector:
    """Fed with one `tick` after the other, from `now` on."""

    def __init__(self, patience: StallLimits, now: float) -> None:
        self._patience = patience
        self._last = now
        self._seconds = 0.0
        self._report_at = patience.report_s

    def tick(self, now: float, turned: bool) -> StallSighting:
        """`turned`: the loop has answered since the tick before. A gap much longer than a tick counts as two."""
        ran_s = min(now - self._last, 2 * self._patience.tick_s)
        self._last = now
        return self._over() if turned else self._still(ran_s)

    def _still(self, ran_s: float) -> StallSighting:
        self._seconds += ran_s
        if 0 < self._patience.end_s <= self._seconds:
            return StallSighting(StallVerdict.END, self._seconds)
        if 0 < self._report_at <= self._seconds:
            first = self._report_at == self._patience.report_s
            self._report_at *= 2
            return StallSighting(StallVerdict.STALLED if first else StallVerdict.STILL, self._seconds)
        return StallSighting(StallVerdict.FINE, self._seconds)

    def _over(self) -> StallSighting:
        reported, seconds = self._report_at > self._patience.report_s, self._seconds
        self._report_at, self._seconds = self._patience.report_s, 0.0
        return StallSighting(StallVerdict.OVER if reported else StallVerdict.FINE, seconds)


EXIT_STATUS = 70  # EX_SOFTWARE: not 2, which says that a new start cannot help
LAST_WORDS_S = 2.0
_FRAMES = 40

_log = log.bind("hawker.observe")


def _end_process() -> None:
    os._exit(EXIT_STATUS)


class Watchdog:
    """`end` ends the process."""

    def __init__(
        self, clock: Clock, patience: StallLimits, metrics: LoopMetrics, end: Callable[[], None] = _end_process
    ) -> None:
        self._clock = clock
        self._patience = patience
        self._metrics = metrics
        self._end = end
        self._left = Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the life of the running event loop, in its thread."""
        loop, loop_thread = asyncio.get_running_loop(), get_ident()
        thread = Thread(target=self._watch, args=(loop, loop_thread), name="hawker-watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._left.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        stall, ping = StallDetector(self._patience, self._clock.monotonic()), WatchdogPing(self._clock, loop)
        while not self._left.wait(self._patience.tick_s):
            turned = ping.answered
            seen = stall.tick(self._clock.monotonic(), turned)
            self._act(seen, loop_thread)
            if turned:
                self._metrics.lag.observe(min(ping.lag_s, seen.seconds + 2 * self._patience.tick_s))
                ping = WatchdogPing(self._clock, loop)

    def _act(self, seen: StallSighting, loop_thread: int) -> None:
        match seen.verdict:
            case StallVerdict.FINE:
                pass
            case StallVerdict.STALLED | StallVerdict.STILL:
                self._metrics.stalls.inc(1 if seen.verdict is StallVerdict.STALLED else 0)
                _say(logging.ERROR, "event loop does not turn", seen, stack=_stack(loop_thread))
            case StallVerdict.OVER:
                _say(logging.WARNING, "event loop turns again", seen)
            case StallVerdict.END:
                stacks = {"stack": _stack(loop_thread), "others": _others(loop_thread)}
                said = _say(logging.CRITICAL, "event loop does not turn, ending the process", seen, **stacks)
                said.join(LAST_WORDS_S)
                self._end()
            case _:
                assert_never(seen.verdict)


class WatchdogPing:
    """A call that the loop is asked to make when it next turns."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._asked_at = clock.monotonic()
        self.lag_s = 0.0
        self.answered = False
        with suppress(RuntimeError):  # the loop is closed: its process is at its end
            loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self.lag_s = self._clock.monotonic() - self._asked_at
        self.answered = True


def _say(level: int, phrase: str, seen: StallSighting, **fields: str) -> Thread:
    """From a thread of its own, which may never come to its end."""
    extra = {"seconds": round(seen.seconds, 2), **fields}
    thread = Thread(target=_log.log, args=(level, phrase), kwargs={"extra": extra}, daemon=True)
    thread.start()
    return thread


def _stack(thread: int) -> str:
    """Where a thread is, the innermost frame last."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-_FRAMES:])


def _others(thread: int) -> str:
    """Where the other threads are: one of them may hold what this one waits for."""
    threads = [each for each in threading.enumerate() if each.ident not in (None, thread, get_ident())]
    return "\n".join(f"{each.name}:\n{_stack(each.ident or 0)}" for each in threads)
