from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.config.schedule import moment_after

HOUR_S = 3600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "moment"),
    [
        ("hourly", "2026-01-31T10:00", "2026-01-31T11:00"),
        ("hourly", "2026-01-31T11:00", "2026-01-31T12:00"),
        ("hourly", "2026-01-31T12:59", "2026-01-31T13:00"),
        ("daily", "2026-02-03T09:59", "2026-02-03T10:00"),
        ("weekly", "2026-02-03T09:59", "2026-02-07T10:00"),
        ("monthly", "2026-01-31T10:00", "2026-02-28T10:00"),
        ("monthly", "2026-02-28T10:00", "2026-03-31T10:00"),
        ("monthly", "2027-12-31T10:00", "2028-01-31T10:00"),
        ("monthly", "2028-02-01T00:00", "2028-02-29T10:00"),
    ],
)
def test_moments_are_counted_from_the_creation(schedule: str, after: str, moment: str) -> None:
    assert moment_after(at("2026-01-31T10:00"), schedule, at(after)) == at(moment)


@given(
    st.floats(0, 4e9),
    st.floats(0, 3e8),
    st.sampled_from([("hourly", 1), ("daily", 24), ("weekly", 168), ("monthly", 744)]),
)
def test_the_next_moment_is_later_and_never_further_away_than_a_period(
    created_at: float, age_s: float, period: tuple[str, int]
) -> None:
    schedule, hours = period
    moment = moment_after(created_at, schedule, created_at + age_s)
    assert created_at + age_s < moment <= created_at + age_s + hours * HOUR_S + 1e-3
    assert moment_after(created_at, schedule, moment) > moment
