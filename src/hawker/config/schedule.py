"""When a machine with a `schedule` is due: once in every hour, day, week or month, counted from its creation. Pure."""

import calendar
from datetime import UTC, datetime

_PERIODS_S = {"hourly": 3600.0, "daily": 86_400.0, "weekly": 604_800.0}


def moment_after(created_at: float, schedule: str, after: float) -> float:
    """The first moment of the schedule that is later than `after`. All in Unix seconds."""
    if schedule == "monthly":
        return _month_after(datetime.fromtimestamp(created_at, UTC), after)
    period_s = _PERIODS_S[schedule]
    count = max(0.0, after - created_at) // period_s + 1
    moment = created_at + count * period_s
    return moment if moment > after else moment + period_s  # the sum was rounded down


def _month_after(created: datetime, after: float) -> float:
    """The same day of the month, or the last one of a shorter month."""
    months = 0
    while (moment := _months_later(created, months)) <= max(after, created.timestamp()):
        months += max(1, int((after - moment) // (31 * 86_400.0)))
    return moment


def _months_later(created: datetime, months: int) -> float:
    year, month = divmod(created.month - 1 + months, 12)
    year, month = created.year + year, month + 1
    day = min(created.day, calendar.monthrange(year, month)[1])
    return created.replace(year=year, month=month, day=day).timestamp()
