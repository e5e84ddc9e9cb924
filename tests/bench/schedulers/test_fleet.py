from bench.schedulers.fleet import FleetPlan
from tests.bench.schedulers.pieces import SURE, order, stage


def test_every_fourth_host_is_twice_as_large() -> None:
    assert [each.memory_mib // 32_768 for each in FleetPlan(hosts=8).build()] == [1, 1, 1, 2, 1, 1, 1, 2]


def test_a_machine_lives_from_the_moment_it_runs() -> None:
    on = stage()
    there, one = on.hosts[0], order()
    there.take(one)
    assert on.fleet.filled(there, one) == 2.0
    on.timeline.run(until=61.9)
    assert there.machines
    on.timeline.run(until=62.0)
    assert not there.machines and on.notary.machines == 0


def test_a_host_that_comes_back_has_its_records_and_ends_what_is_overdue() -> None:
    on = stage(plan=FleetPlan(hosts=4, repair_s=1000.0, mtbf_s=0.0))
    there = on.hosts[0]
    for one in (order(0), order(1)):
        there.take(one)
        on.fleet.filled(there, one)
    on.fleet.fail(there, for_good=False)
    on.fleet.ended(there, order(0))
    assert not there.up and len(there.machines) == 2
    on.fleet.come_back(there)
    assert there.up and list(there.machines) == [1] and on.notary.breaches == []


def test_all_learn_of_it_later() -> None:
    on = stage()
    noticed = []

    class Listens:
        def released(self, host: object, order: object) -> None: ...

        def noticed(self, host: object) -> None:
            noticed.append(on.timeline.now)

    on.fleet.watcher = Listens()
    on.fleet.fail(on.hosts[0], for_good=True)
    on.timeline.run(until=60.0)
    assert noticed == [SURE.detect_s] and not on.hosts[0].up


def test_a_cancel_takes_the_machine_away() -> None:
    on = stage()
    there, one = on.hosts[0], order()
    there.admit(one, ticket=7)
    on.fleet.filled(there, one)
    on.fleet.cancel(there, one, 7)
    assert not there.machines and on.notary.machines == 0 and there.has_cancelled(7)


def test_hosts_fail_as_often_as_the_plan_says() -> None:
    on = stage(plan=FleetPlan(hosts=100, mtbf_s=10_000.0, repair_s=1.0, for_good=0.0))
    on.timeline.resume(on.fleet.fail_now_and_then())
    on.timeline.run(until=20_000.0)
    assert 150 < on.fleet.failures < 250
