import pytest

from bench.schedulers.tally import Balance, Evenness, Histogram, Refusal, evenness
from tests.bench.schedulers.pieces import host, order, stage


def test_times_count_from_the_order_on() -> None:
    on = stage()
    on.hosts[0].take(order())
    on.notary.filled(on.hosts[0], order())
    on.timeline.run(until=1.0)
    on.tools.tally.placed(on.hosts[0], order(at_s=0.5), runs_at_s=2.5)
    placed, runs = on.tools.tally.placement.percentile(50), on.tools.tally.start.percentile(50)
    assert placed is not None and 0.49 < placed < 0.51
    assert runs is not None and 1.96 < runs < 2.04


def test_refusals_are_counted_by_why_and_whether_they_had_to_be() -> None:
    tally = stage().tools.tally
    tally.refused(order(0), Refusal.NO_ROOM, avoidable=True)
    tally.refused(order(1), Refusal.NO_ROOM, avoidable=False)
    assert tally.refusals == {Refusal.NO_ROOM: 2} and tally.avoidable == 1


def test_work_is_summed() -> None:
    tally = stage().tools.tally
    tally.decided(looked=3)
    tally.decided(asked=2)
    assert (tally.looked, tally.asked) == (3, 2)


def test_equal_hosts_vary_by_nothing() -> None:
    assert evenness([0.5, 0.5, 0.5]) == Evenness(0.5, 0.0, 1.0)


def test_the_overworked_few_stand_out() -> None:
    found = evenness([0.2] * 97 + [1.0] * 3)
    assert found.overworked == pytest.approx(5.0) and found.variation > 0.5


def test_where_half_of_the_hosts_are_idle_there_is_no_ratio() -> None:
    assert evenness([0.0, 0.0, 1.0]).overworked is None and evenness([]) == Evenness(0.0, 0.0, None)


def test_the_second_half_is_judged() -> None:
    hosts, balance = [host(0), host(1)], Balance()
    balance.sample(hosts)
    for number, each in enumerate(hosts):
        each.take(order(number, memory_mib=16_384))
    balance.sample(hosts)
    assert balance.mean() == Evenness(0.5, 0.0, 1.0)
    assert Balance().mean().overworked is None


def test_samples_are_bounded() -> None:
    hosts, balance = [host(0)], Balance()
    hosts[0].take(order())
    for _ in range(5000):
        balance.sample(hosts)
    assert balance.kept <= 256 and balance.mean().busy == pytest.approx(1 / 32)


def test_percentiles_are_right_to_two_percent() -> None:
    times = Histogram()
    for number in range(1, 10_001):
        times.add(number / 1000)
    assert times.percentile(50) == pytest.approx(5.0, rel=0.02)
    assert times.percentile(99) == pytest.approx(9.9, rel=0.02)
    assert times.count == 10_000


def test_without_times_there_is_no_percentile() -> None:
    assert Histogram().percentile(50) is None


def test_value_out_of_range_is_counted_at_end_of_histogram() -> None:
    times = Histogram()
    for seconds in (0.0, -1.0, 1e9):
        times.add(seconds)
    assert times.count == 3 and (times.percentile(100) or 0) > 3600
