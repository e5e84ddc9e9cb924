"""When windows are open: each day, each week, over midnight."""

from datetime import UTC, datetime

import pytest

from hawker.time_window import DAY_S, WEEK_S, TimeWindow, is_daily, parse_window

MIDNIGHT = datetime(2026, 11, 29, tzinfo=UTC).timestamp()  # a Sunday
HOUR_S = 3600.0


def test_a_window_may_lie_over_midnight() -> None:
    window = parse_window("23:30-01:00")
    assert window == TimeWindow(23.5 * HOUR_S, 1.5 * HOUR_S)
    assert window.opened(MIDNIGHT + 1800) == MIDNIGHT - 1800
    assert window.opened(MIDNIGHT + HOUR_S) is None and window.opened(MIDNIGHT + 12 * HOUR_S) is None
    assert parse_window("00:00-00:00").opened(MIDNIGHT + 12 * HOUR_S) == MIDNIGHT


def test_a_window_of_a_weekday_is_open_once_a_week() -> None:
    window = parse_window("sun 02:00-04:00")
    assert window.length_s == 2 * HOUR_S and window.period_s == WEEK_S
    hours = [number for number in range(14 * 24) if window.opened(MIDNIGHT + number * HOUR_S) is not None]
    assert hours == [2, 3, 7 * 24 + 2, 7 * 24 + 3]
    days = [parse_window(f"{day} 00:00-00:00").opened(MIDNIGHT) for day in ("sat", "sun", "mon")]
    assert days == [None, MIDNIGHT, None]


def test_a_window_opens_next_or_is_open() -> None:
    window = parse_window("sun 02:00-04:00")
    opens = MIDNIGHT + 2 * HOUR_S
    assert window.opens(MIDNIGHT) == window.opens(opens) == window.opens(opens + HOUR_S) == opens
    assert window.opens(opens + 2 * HOUR_S) == opens + WEEK_S
    assert parse_window("01:00-02:00").opens(MIDNIGHT + 2 * HOUR_S) == MIDNIGHT + DAY_S + HOUR_S


@pytest.mark.parametrize(
    "text", ["", "1-5", "01:00-24:00", "sunday 01:00-02:00", "Sun 01:00-02:00", "sun 01:00-02:00 ", "01:00-02:0\u0660"]
)
def test_a_window_of_other_words_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="02:00-04:00"):
        parse_window(text)
    assert not is_daily(text)


def test_a_window_of_a_week_is_not_daily() -> None:
    assert is_daily("01:00-05:30") and not is_daily("sun 01:00-05:30")
