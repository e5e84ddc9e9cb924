from hawker.sim.worker.operation import KILLS, NATURE, WorkerVerb
from hawker.sim.worker.plan import CLIENTS, draw


def test_a_seed_draws_the_same_plan_each_time_and_another_one_another() -> None:
    assert draw(5) == draw(5) and draw(5) != draw(6)


def test_deeds_are_numbered_in_the_order_of_time() -> None:
    deeds = draw(1).deeds
    assert [deed.number for deed in deeds] == list(range(1, len(deeds) + 1))
    assert [deed.at for deed in deeds] == sorted(deed.at for deed in deeds)


def test_minutes_say_how_long_it_goes_on() -> None:
    assert max(deed.at for deed in draw(1, 1.0).deeds) < 60 < max(deed.at for deed in draw(1, 2.0).deeds)


def test_only_keeps_the_world_and_drops_deeds() -> None:
    plan = draw(2)
    short = plan.only({3, 7})
    assert [deed.number for deed in short.deeds] == [3, 7]
    assert (short.seed, short.room, short.on_file) == (plan.seed, plan.room, plan.on_file)


def test_every_kind_of_deed_and_both_stores_come_up() -> None:
    plans = [draw(seed) for seed in range(1, 40)]
    assert {deed.verb for plan in plans for deed in plan.deeds} == set(WorkerVerb)
    assert {plan.on_file for plan in plans} == {True, False} == {plan.reconciles for plan in plans}


def test_each_client_begins_with_an_order_and_nature_kills_in_many_ways() -> None:
    plan = draw(1)
    assert all(plan.of(client)[0].verb in (WorkerVerb.CREATE, WorkerVerb.VOLUME) for client in CLIENTS)
    kills = [deed for seed in range(1, 20) for deed in draw(seed).of(NATURE) if deed.verb in KILLS]
    assert {deed.reboots for deed in kills} == {True, False} and {deed.kept for deed in kills} == {0.0, 0.5, 1.0}
