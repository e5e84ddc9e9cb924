import pytest

from hawker.sim.schedulers.histogram import Histogram


def test_percentiles_are_right_to_two_percent() -> None:
    times = Histogram()
    for number in range(1, 10_001):
        times.add(number / 1000)
    assert times.percentile(50) == pytest.approx(5.0, rel=0.02)
    assert times.percentile(99) == pytest.approx(9.9, rel=0.02)
    assert times.count == 10_000


def test_without_times_there_is_no_percentile() -> None:
    assert Histogram().percentile(50) is None


def test_what_is_out_of_range_is_counted_at_its_end() -> None:
    times = Histogram()
    for seconds in (0.0, -1.0, 1e9):
        times.add(seconds)
    assert times.count == 3 and (times.percentile(100) or 0) > 3600
