from hawker.sim.schedulers.tally import Refusal
from tests.sim.schedulers.pieces import order, stage


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
