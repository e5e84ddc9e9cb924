"""Windows of time that come again each day or week, in UTC."""

import re

from hawker.value_object import ValueObject

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S

_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_WINDOW = re.compile(rf"(?:(mon|tue|wed|thu|fri|sat|sun) )?({_CLOCK})-({_CLOCK})")
_DAYS = ("thu", "fri", "sat", "sun", "mon", "tue", "wed")  # the first day of Unix time was a Thursday


class TimeWindow(ValueObject, frozen=True):
    """A time that comes again in each period: it begins `start_s` seconds after the period and lasts for `length_s`
    seconds, at most the period. Periods are counted from the beginning of Unix time, so those of a day begin at
    midnight UTC, and those of a week on Thursday."""

    start_s: float
    length_s: float
    period_s: float = DAY_S
    """The length of the period in seconds, above 0: a day where nothing is said."""

    def opened(self, now: float) -> float | None:
        """The moment in Unix seconds at which the window that is open now was opened; None while none is open."""
        start = now - (now - self.start_s) % self.period_s
        return start if now < start + self.length_s else None

    def opens(self, now: float) -> float:
        """The moment in Unix seconds at which the window that is open now was opened, or else the next one is."""
        opened = self.opened(now)
        return now + (self.start_s - now) % self.period_s if opened is None else opened


def is_daily(text: str) -> bool:
    found = _WINDOW.fullmatch(text)
    return found is not None and found.group(1) is None


def parse_window(text: str) -> TimeWindow:
    """The window of a text `HH:MM-HH:MM`, each day, or `sun HH:MM-HH:MM`, each week; the end may be on the next day.
    Raises `ValueError`."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise ValueError(
            "not two times of a day in UTC such as 01:00-05:30, nor those of a weekday such as sun 02:00-04:00"
        )
    day, *clocks = found.groups()
    start, end = (60.0 * (int(clock[:2]) * 60 + int(clock[3:])) for clock in clocks)
    length_s = (end - start) % DAY_S or DAY_S
    return (
        TimeWindow(start, length_s) if day is None else TimeWindow(_DAYS.index(day) * DAY_S + start, length_s, WEEK_S)
    )
