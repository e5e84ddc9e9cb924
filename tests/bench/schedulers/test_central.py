from collections.abc import Callable

import pytest

from bench.schedulers.central import Central, Choose, first_fit, spread
from bench.schedulers.costs import Costs
from bench.schedulers.tally import Refusal
from bench.schedulers.view import View
from tests.bench.schedulers.pieces import SURE, Stage, order, stage


def central(choose: Choose, costs: Costs = SURE) -> tuple[Stage, Central]:
    on = stage(hosts=4, costs=costs)
    policy = Central(on.tools, choose)
    on.fleet.watcher = policy
    return on, policy


def test_first_fit_fills_one_host_after_another() -> None:
    on, policy = central(first_fit)
    for number in range(33):
        policy.submit(order(number))
    on.timeline.run(until=1.0)
    assert [len(each.machines) for each in on.hosts] == [32, 1, 0, 0]


def test_spread_goes_to_the_emptiest() -> None:
    on, policy = central(spread)
    for number in range(10):
        policy.submit(order(number))
    on.timeline.run(until=1.0)
    assert [len(each.machines) for each in on.hosts] == [2, 2, 2, 4]


def test_hosts_that_a_scan_would_look_at_are_counted() -> None:
    view = View(stage(hosts=4).hosts)
    for _ in range(32):
        view.take(0, order())
    assert first_fit(view, order()) == (1, 2) and spread(view, order()) == (1, 4)
    assert first_fit(view, order(memory_mib=1 << 20)) == (None, 4)


def test_decisions_wait_for_each_other() -> None:
    on, policy = central(first_fit, Costs(loss=0.0, decide_s=1.0))
    for number in range(3):
        policy.submit(order(number))
    on.timeline.run(until=2.5)
    assert on.tools.tally.placement.count == 2


def test_order_that_waits_too_long_is_refused() -> None:
    on, policy = central(first_fit, Costs(loss=0.0, decide_s=20.0))
    for number in range(3):
        policy.submit(order(number))
    on.timeline.run(until=100.0)
    assert on.tools.tally.placement.count == 2 and on.tools.tally.refusals == {Refusal.TOO_LATE: 1}


def test_without_room_it_is_said_at_once() -> None:
    on, policy = central(spread)
    policy.submit(order(memory_mib=1 << 20))
    on.timeline.run(until=0.1)
    assert on.tools.tally.refusals == {Refusal.NO_ROOM: 1}


@pytest.mark.parametrize("choose", [first_fit, spread])
def test_a_host_that_is_down_costs_a_try_until_all_know(choose: Choose) -> None:
    on, policy = central(choose)
    on.fleet.fail(on.hosts[0], for_good=True)
    policy.submit(order())
    on.timeline.run(until=30.0)
    assert on.tools.tally.placement.count == 1 and on.notary.breaches == []
    percentile: Callable[[float], float | None] = on.tools.tally.placement.percentile
    assert (percentile(50) or 0) > SURE.silence_s


def test_a_picture_that_was_wrong_is_corrected() -> None:
    on, policy = central(first_fit)
    on.hosts[0].memory_left = 0
    policy.submit(order())
    on.timeline.run(until=1.0)
    assert list(on.hosts[1].machines) == [0]


def test_room_that_is_free_again_is_used_again() -> None:
    on, policy = central(first_fit)
    policy.submit(order(0, memory_mib=32_768))
    on.timeline.run(until=70.0)
    policy.submit(order(1, at_s=70.0, memory_mib=32_768))
    on.timeline.run(until=71.0)
    assert list(on.hosts[0].machines) == [1]
