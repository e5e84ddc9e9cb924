from bench.schedulers.costs import Costs
from bench.schedulers.optimistic import Optimistic, Snapshot, Table, fullest_of_some
from bench.schedulers.tally import Refusal
from bench.schedulers.view import View
from hawker.clock import ManualClock
from tests.bench.schedulers.pieces import SURE, Stage, order, stage


def optimistic(hosts: int, costs: Costs = SURE) -> tuple[Stage, Optimistic]:
    on = stage(hosts=hosts, costs=costs)
    policy = Optimistic(on.tools)
    on.fleet.watcher = policy
    return on, policy


def test_a_snapshot_is_as_old_as_its_last_look() -> None:
    table = Table(View(stage(hosts=2).hosts))
    snapshot = Snapshot(table)
    big = order(memory_mib=32_768)
    assert table.commit(0, big)
    assert snapshot.fits(0, big)
    snapshot.refresh(1.0)
    assert not snapshot.fits(0, big) and snapshot.fits(1, big)


def test_a_snapshot_that_missed_too_much_is_read_anew() -> None:
    table = Table(View(stage(hosts=1).hosts))
    snapshot = Snapshot(table)
    for _ in range(200):
        table.commit(0, order())
        table.give(0, order())
    table.commit(0, order(memory_mib=32_768))
    snapshot.refresh(1.0)
    assert snapshot.memory_left(0) == 0


def test_the_table_takes_a_change_only_where_there_is_room() -> None:
    table = Table(View(stage(hosts=1).hosts))
    assert table.commit(0, order(memory_mib=32_768)) and not table.commit(0, order())


def test_the_fullest_of_those_looked_at_is_taken() -> None:
    table = Table(View(stage(hosts=2).hosts))
    table.commit(1, order())
    assert fullest_of_some(Snapshot(table), order(), ManualClock(seed=1)) == (1, 2)


def test_each_host_is_looked_at_once_before_there_is_said_to_be_no_room() -> None:
    table = Table(View(stage(hosts=12).hosts))
    for number in range(12):
        if number != 7:
            table.commit(number, order(cpus=64))
    for seed in range(30):
        assert fullest_of_some(Snapshot(table), order(cpus=64), ManualClock(seed=seed))[0] in (3, 7, 11)
    assert fullest_of_some(Snapshot(table), order(cpus=129), ManualClock()) == (None, 12)


def test_slower_scheduler_looks_again() -> None:
    on, policy = optimistic(hosts=2, costs=Costs(loss=0.0, schedulers=2))
    for number in range(3):
        policy.submit(order(number, memory_mib=32_768))
    on.timeline.run(until=10.0)
    tally = on.tools.tally
    assert tally.placement.count == 2 and tally.conflicts >= 1 and tally.refusals == {Refusal.NO_ROOM: 1}


def test_after_many_conflicts_an_order_is_given_up() -> None:
    on, policy = optimistic(hosts=1, costs=Costs(loss=0.0, schedulers=2, conflicts=1))
    for number in range(2):
        policy.submit(order(number, memory_mib=32_768))
    on.timeline.run(until=10.0)
    assert on.tools.tally.refusals == {Refusal.CONFLICTS: 1}


def test_a_lone_scheduler_has_no_conflicts() -> None:
    on, policy = optimistic(hosts=8, costs=Costs(loss=0.0, schedulers=1))
    for number in range(100):
        policy.submit(order(number))
    on.timeline.run(until=10.0)
    assert on.tools.tally.placement.count == 100 and on.tools.tally.conflicts == 0
