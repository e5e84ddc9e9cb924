"""When a volume is due to be snapshotted, when a snapshot may go, and when a volume that was deleted is gone. Pure, but
for `Leaps`, which notices that the wall clock was set.

All are meant in wall time, because people mean days. But what is kept must not be lost because someone set the clock:
so whoever holds these moments moves them with it.
"""

from hawker.clock import Clock
from hawker.time_window import DAY_S

GRACE_S = 24 * 3600.0  # how long a deleted volume can be taken back
SMALLEST_LEAP_S = 5.0  # NTP's own corrections are smaller, and so is what a busy host makes of two readings


def backup_due(created_at: float, last: float | None, now: float) -> bool:
    """Whether a backup is due: one in each day of the volume's life, counted from its creation. `last` is when the last
    one was begun. A day without a daemon is not made up for more than once; a clock that was set back costs one too
    many, never a day."""
    return _day(created_at, now) != _day(created_at, created_at if last is None else last)


def _day(created_at: float, moment: float) -> int:
    return int((moment - created_at) // DAY_S)


def kept_until(taken_at: float, retention_days: int) -> float:
    return taken_at + retention_days * DAY_S


class Leaps:
    """The leaps of the wall clock when it is set, seen by the monotonic clock, which nobody can set. A wall clock that
    is set while no daemon runs is believed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.monotonic()

    def since_last_look(self) -> float:
        """The seconds by which the wall clock was set since the last look, forwards if positive; 0 when it was not set.
        A host that slept counts as one that leapt."""
        offset = self._clock.now() - self._clock.monotonic()
        leap = offset - self._offset
        if abs(leap) < SMALLEST_LEAP_S:
            return 0.0
        self._offset = offset
        return leap
