"""Whether the event loop has stalled, told from what a watching thread sees at each of its own ticks. Pure.

Invariant: only time in which the watching thread ran as well counts. When the whole process stood still (SIGSTOP, a
suspended laptop, a paused virtual machine), neither ran, and the loop is not to blame.
"""

from enum import Enum

from hawker.value_object import ValueObject


class StallLimits(ValueObject, frozen=True, kw_only=True):
    """In seconds, 0 or more: a loop that has not turned for `report_s` is told in the log, after `end_s` the process is
    ended. 0 switches one off."""

    report_s: float
    end_s: float

    @property
    def tick_s(self) -> float:
        """How often to look, so that a stall is seen in good time."""
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
