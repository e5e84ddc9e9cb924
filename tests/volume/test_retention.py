"""Facts about days: when a backup is due, how long things are kept, and what a clock that is set does to neither."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.time_window import DAY_S
from hawker.volume.retention import SMALLEST_LEAP_S, Leaps, backup_due, kept_until

BORN = 1_700_000_000.5


class SetClock(ManualClock):
    """Of which someone sets the wall time."""

    offset = 0.0

    def now(self) -> float:
        return super().now() + self.offset


def test_the_first_backup_is_due_a_day_after_the_creation() -> None:
    assert not backup_due(BORN, None, BORN)
    assert not backup_due(BORN, None, BORN + DAY_S - 1)
    assert backup_due(BORN, None, BORN + DAY_S)


def test_a_backup_is_due_once_a_day() -> None:
    taken = BORN + DAY_S + 3600
    assert not backup_due(BORN, taken, taken)
    assert not backup_due(BORN, taken, BORN + 2 * DAY_S - 1)
    assert backup_due(BORN, taken, BORN + 2 * DAY_S)


def test_days_without_a_daemon_are_made_up_for_once() -> None:
    back = BORN + 9.5 * DAY_S
    assert backup_due(BORN, BORN + DAY_S, back)
    assert not backup_due(BORN, back, back)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_backup_that_was_just_begun_is_not_due_again_whatever_the_clock_says(leap: float, further: float) -> None:
    for now in (BORN + leap, BORN + further):
        assert not backup_due(BORN, now, now)


def test_after_a_clock_was_set_back_backups_go_on() -> None:
    in_the_future = BORN + 400 * DAY_S
    taken = [in_the_future]
    for hour in range(24 * 4):
        now = BORN + 2 * DAY_S + hour * 3600
        if backup_due(BORN, taken[-1], now):
            taken.append(now)
    assert [(at - BORN) / DAY_S for at in taken[1:]] == [2, 3, 4, 5]


def test_a_snapshot_is_kept_for_whole_days() -> None:
    assert kept_until(BORN, 5) == BORN + 5 * DAY_S


def test_a_clock_that_is_set_is_noticed_once_and_in_both_directions() -> None:
    clock = SetClock()
    leaps = Leaps(clock)
    clock.advance(1000)
    assert leaps.since_last_look() == 0
    clock.offset = 3600.0
    clock.advance(60)
    assert leaps.since_last_look() == 3600
    assert leaps.since_last_look() == 0
    clock.offset = 0.0
    assert leaps.since_last_look() == -3600


def test_small_corrections_add_up_until_they_are_told() -> None:
    clock = SetClock()
    leaps = Leaps(clock)
    told = []
    for _ in range(4):
        clock.offset += SMALLEST_LEAP_S / 2
        told.append(leaps.since_last_look())
    assert sum(told) == clock.offset
