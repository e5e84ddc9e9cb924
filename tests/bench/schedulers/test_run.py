import pytest

from bench.schedulers.report import Report
from bench.schedulers.run import POLICIES
from tests.bench.schedulers.pieces import played


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {name: played(name, hosts=40, count=2500) for name in POLICIES}


@pytest.mark.parametrize("name", POLICIES)
def test_every_order_has_its_answer_and_no_promise_is_broken(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    assert report.placed + sum(report.refused.values()) == report.orders == 2500
    assert report.breaches == () and report.failures > 0


def test_the_same_seed_gives_the_same_report_and_another_one_another() -> None:
    assert played("market", seed=3, count=300) == played("market", seed=3, count=300)
    assert played("market", seed=3, count=300) != played("market", seed=4, count=300)


def test_the_market_pulls_least_and_spread_is_as_even(reports: dict[str, Report]) -> None:
    pulled = {name: report.pulled_gib for name, report in reports.items()}
    assert min(pulled, key=lambda name: pulled[name]) == "market"
    assert max(reports["market"].variation, reports["spread"].variation) < 0.15
    assert min(reports[name].variation for name in ("first-fit", "polling", "optimistic")) > 0.15


def test_a_decision_of_the_market_takes_longer_than_one_of_a_central_scheduler(reports: dict[str, Report]) -> None:
    assert (reports["market"].place_p50_ms or 0) > (reports["first-fit"].place_p50_ms or 0)


def test_spread_looks_at_all_hosts_and_the_market_asks_sixteen(reports: dict[str, Report]) -> None:
    assert reports["spread"].looked == pytest.approx(40, rel=0.01)
    assert reports["market"].asked == pytest.approx(16, rel=0.1) and reports["market"].looked > 30
    assert reports["optimistic"].looked < 40 and reports["polling"].background > 10


def test_a_full_fleet_refuses_and_still_keeps_its_promises() -> None:
    for name in POLICIES:
        report = played(name, hosts=5, count=1500, load=3.0)
        assert sum(report.refused.values()) > 100 and report.breaches == ()


def test_a_large_fleet_takes_many_orders_in_one_run() -> None:
    """What `bench/million_orders.py` does with 250 times as many."""
    report = played("market", hosts=1000, count=4000)
    assert report.placed > 3900 and report.breaches == () and report.failures > 0
