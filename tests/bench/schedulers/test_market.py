from bench.schedulers.costs import Costs
from bench.schedulers.market import Market
from bench.schedulers.tally import Refusal
from hawker.market.preferences import Limits
from tests.bench.schedulers.pieces import SURE, Stage, order, stage


def market(hosts: int = 4, costs: Costs = SURE, **limits: int) -> tuple[Stage, Market]:
    on = stage(hosts=hosts, costs=costs, limits=Limits(**limits))
    policy = Market(on.tools)
    on.fleet.watcher = policy
    return on, policy


def test_machines_go_to_different_hosts() -> None:
    on, policy = market(hosts=3)
    for number in range(3):
        on.timeline.call(float(number), policy.submit, order(number, at_s=float(number), image=number))
    on.timeline.run(until=10.0)
    assert sorted(len(each.machines) for each in on.hosts) == [1, 1, 1]


def test_a_host_that_fills_up_meanwhile_refuses_and_the_next_best_is_asked() -> None:
    on, policy = market(hosts=2)
    for number in range(2):
        policy.submit(order(number, memory_mib=32_768))
    on.timeline.run(until=10.0)
    assert on.tools.tally.placement.count == 2 and on.notary.breaches == []


def test_where_nobody_bids_others_are_asked() -> None:
    on, policy = market(hosts=12, ask_all_up_to=1, ask_best=2, ask_random=0, ask_rounds=6)
    for number in (0, 1, 2, 4, 5, 6):
        on.hosts[number].memory_left = 100
    policy.submit(order())
    on.timeline.run(until=1.0)
    assert on.tools.tally.placement.count == 1 and on.tools.tally.asked > 2


def test_a_sample_may_miss_the_room_that_there_is() -> None:
    on, policy = market(hosts=12, ask_all_up_to=1, ask_best=2, ask_random=0, ask_rounds=1)
    for number in range(11):
        on.hosts[number].memory_left = 100
    policy.submit(order())
    on.timeline.run(until=1.0)
    assert on.tools.tally.refusals == {Refusal.NO_ROOM: 1} and on.tools.tally.avoidable == 1


def test_a_host_that_died_a_moment_ago_does_not_bid() -> None:
    on, policy = market(hosts=2)
    on.fleet.fail(on.hosts[0], for_good=True)
    policy.submit(order())
    on.timeline.run(until=0.1)
    assert list(on.hosts[1].machines) == [0]


def test_a_broker_serves_one_order_after_another() -> None:
    on, policy = market(costs=Costs(loss=0.0, decide_s=1.0, brokers=1))
    for number in range(3):
        policy.submit(order(number))
    on.timeline.run(until=2.5)
    assert on.tools.tally.placement.count == 2


def test_order_that_waits_too_long_is_refused() -> None:
    on, policy = market(costs=Costs(loss=0.0, decide_s=20.0, brokers=1))
    for number in range(2):
        policy.submit(order(number))
    on.timeline.run(until=100.0)
    assert on.tools.tally.refusals == {Refusal.TOO_LATE: 1}


def test_after_a_lost_answer_it_goes_elsewhere_and_fills_once() -> None:
    on, policy = market(costs=Costs(loss=0.5))
    for number in range(50):
        policy.submit(order(number))
    on.timeline.run(until=50.0)
    assert on.tools.tally.placement.count + sum(on.tools.tally.refusals.values()) == 50
    assert on.notary.breaches == [] and on.notary.machines >= on.tools.tally.placement.count
