from bench.schedulers.tally import Refusal
from tests.bench.schedulers.pieces import order, stage


def test_a_refusal_while_a_host_has_room_was_avoidable() -> None:
    on = stage(hosts=2)
    on.tools.refuse(order(0), Refusal.NO_ROOM)
    on.tools.refuse(order(1, memory_mib=1 << 20), Refusal.NO_ROOM)
    for each in on.hosts:
        on.fleet.fail(each, for_good=True)
    on.tools.refuse(order(2), Refusal.NO_ROOM)
    assert on.tools.tally.avoidable == 1


def test_an_order_is_late_when_its_patience_is_over() -> None:
    on = stage()
    assert not on.tools.is_late(order())
    on.timeline.run(until=30.1)
    assert on.tools.is_late(order()) and not on.tools.is_late(order(at_s=1.0))
