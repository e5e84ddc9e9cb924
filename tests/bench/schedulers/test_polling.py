from bench.schedulers.polling import Polling
from bench.schedulers.tally import Refusal
from tests.bench.schedulers.pieces import Stage, order, stage


def polling(hosts: int = 4) -> tuple[Stage, Polling]:
    on = stage(hosts=hosts)
    policy = Polling(on.tools)
    on.fleet.watcher = policy
    return on, policy


def test_an_order_waits_for_the_next_poll() -> None:
    on, policy = polling(hosts=1)
    policy.submit(order())
    on.timeline.run(until=1.1)
    assert on.tools.tally.placement.count == 1


def test_host_that_claims_polls_again_at_once() -> None:
    on, policy = polling(hosts=8)
    for number in range(20):
        policy.submit(order(number))
    on.timeline.run(until=3.0)
    assert on.tools.tally.placement.count == 20
    assert max(len(each.machines) for each in on.hosts) >= 10


def test_a_worker_takes_the_first_order_that_fits() -> None:
    on, policy = polling(hosts=1)
    policy.submit(order(0, memory_mib=1 << 20))
    policy.submit(order(1))
    on.timeline.run(until=2.0)
    assert list(on.hosts[0].machines) == [1]


def test_order_that_fits_nowhere_is_refused_when_it_is_late() -> None:
    on, policy = polling()
    policy.submit(order(memory_mib=1 << 20))
    on.timeline.run(until=29.0)
    assert not on.tools.tally.refusals
    on.timeline.run(until=31.0)
    assert on.tools.tally.refusals == {Refusal.TOO_LATE: 1}


def test_a_host_that_is_down_does_not_poll() -> None:
    on, policy = polling(hosts=2)
    on.fleet.fail(on.hosts[0], for_good=True)
    for number in range(5):
        policy.submit(order(number))
    on.timeline.run(until=5.0)
    assert len(on.hosts[1].machines) == 5


def test_polls_on_the_beat_are_counted() -> None:
    _, policy = polling(hosts=8)
    assert policy.background(60.0) == 480
