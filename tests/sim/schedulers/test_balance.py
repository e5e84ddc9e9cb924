import pytest

from hawker.sim.schedulers.balance import Balance, Evenness, evenness
from tests.sim.schedulers.pieces import host, order


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
