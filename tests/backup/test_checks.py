"""Facts about what is known of backups since they were read."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.backup.checks import (
    CLOCKS_S,
    FRESH_S,
    PARTS,
    BackupCheck,
    BackupChecks,
    believed,
    due_parts,
    merged,
    next_moment,
    verified_since,
)
from hawker.time_window import DAY_S

NOW = 1_800_000_000.0
_MOMENTS = st.none() | st.sampled_from([1.0, 2.0, 3.0])
_CHECKS = st.builds(
    BackupChecks,
    parts=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=PARTS, max_size=PARTS).map(tuple),
    backups=st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.builds(
            BackupCheck,
            listed_at=_MOMENTS,
            verified_at=_MOMENTS,
            restored_at=_MOMENTS,
            damaged_at=_MOMENTS,
            damage=st.sampled_from(["x", "y"]),
        ),
    ),
)


@given(_CHECKS, _CHECKS, _CHECKS)
def test_records_of_several_writers_make_one_in_any_order(
    one: BackupChecks, other: BackupChecks, third: BackupChecks
) -> None:
    assert merged(one, other) == merged(other, one)
    assert merged(merged(one, other), third) == merged(one, merged(other, third))
    assert merged(merged(one, other), other) == merged(one, other)


def test_damage_is_over_once_all_was_read_after_it() -> None:
    assert BackupCheck(damaged_at=5.0, damage="rot").found == "rot"
    assert BackupCheck(damaged_at=5.0, damage="rot", verified_at=5.0).found == "rot"
    assert BackupCheck(damaged_at=5.0, damage="rot", verified_at=5.1).found is None


def test_backup_is_stale_when_nobody_has_read_it_for_30_days_and_a_young_one_is_not() -> None:
    assert not BackupCheck().is_stale(NOW - FRESH_S, NOW)
    assert BackupCheck().is_stale(NOW - FRESH_S - 1, NOW)
    assert not BackupCheck(verified_at=NOW - FRESH_S).is_stale(NOW - 9 * FRESH_S, NOW)
    assert BackupCheck(verified_at=NOW - FRESH_S - 1).is_stale(NOW - 9 * FRESH_S, NOW)


def test_moment_of_the_future_says_nothing() -> None:
    late = NOW + CLOCKS_S + 1
    check = BackupCheck(listed_at=late, verified_at=late, restored_at=NOW, damaged_at=late, damage="rot")
    found = believed(BackupChecks(parts=(late, NOW) + (0.0,) * (PARTS - 2), backups={"a": check}), NOW)
    assert found.parts[:2] == (0.0, NOW) and found.backups == {"a": BackupCheck(restored_at=NOW)}


def test_parts_that_wait_the_longest_are_due_and_each_comes_within_its_period() -> None:
    parts, seen = [0.0] * PARTS, list[int]()
    for day in range(20):
        now = NOW + day * DAY_S
        due = due_parts(tuple(parts), now, 5)
        assert len(due) == 13 or day == 19
        seen += due
        for part in due:
            parts[part] = now
        assert due_parts(tuple(parts), now + DAY_S - 1, 5) == [], "once a day"
    assert set(seen) == set(range(PARTS))


def test_look_is_later_than_every_look_before_though_its_clock_is_not() -> None:
    checks = BackupChecks(parts=(NOW,) + (0.0,) * (PARTS - 1), backups={"a": BackupCheck(listed_at=NOW + 5)})
    assert NOW + 5 < next_moment(checks, NOW - 60) < NOW + 6
    assert next_moment(checks, NOW + 60) == NOW + 60
    assert next_moment(BackupChecks(), NOW) == NOW


def test_parts_that_were_left_are_due_on_the_same_day() -> None:
    assert due_parts((NOW,) * 10 + (0.0,) * (PARTS - 10), NOW + 60, 5) == [10, 11, 12]
    assert due_parts((0.0,) * PARTS, NOW, 100) == list(range(PARTS))
    assert due_parts((0.0,) * PARTS, NOW, 0) == []


def test_backup_is_verified_since_its_oldest_part_was_and_not_before_it_was_listed() -> None:
    parts = (NOW, NOW + 3 * DAY_S) + (0.0,) * (PARTS - 2)
    listed = BackupCheck(listed_at=NOW)
    assert verified_since(listed, parts, {0, 1}, NOW + 9 * DAY_S) == NOW
    assert verified_since(listed, parts, {1}, NOW + 9 * DAY_S) == NOW + 3 * DAY_S
    assert verified_since(listed, parts, {0, 2}, NOW + 9 * DAY_S) is None
    assert verified_since(BackupCheck(listed_at=NOW + 1), parts, {0}, NOW + 9 * DAY_S) is None
    assert verified_since(listed, parts, (), NOW + 9 * DAY_S) == NOW + 9 * DAY_S, "its lists are all that it has"
