from hawker.sim.harness.plan import NATURE
from hawker.sim.worker.plan import CLIENTS, KILLS, WorkerVerb, draw


def test_a_seed_draws_the_same_plan_each_time_and_another_one_another() -> None:
    assert draw(5) == draw(5) and draw(5) != draw(6)


def test_deeds_are_numbered_in_the_order_of_time() -> None:
    operations = draw(1).operations
    assert [operation.number for operation in operations] == list(range(1, len(operations) + 1))
    assert [operation.at for operation in operations] == sorted(operation.at for operation in operations)


def test_minutes_say_how_long_it_goes_on() -> None:
    assert (
        max(operation.at for operation in draw(1, 1.0).operations)
        < 60
        < max(operation.at for operation in draw(1, 2.0).operations)
    )


def test_only_keeps_the_world_and_drops_operations() -> None:
    plan = draw(2)
    short = plan.only({3, 7})
    assert [operation.number for operation in short.operations] == [3, 7]
    assert (short.seed, short.room, short.on_file) == (plan.seed, plan.room, plan.on_file)


def test_every_kind_of_deed_and_both_stores_come_up() -> None:
    plans = [draw(seed) for seed in range(1, 40)]
    assert {operation.verb for plan in plans for operation in plan.operations} == set(WorkerVerb)
    assert {plan.on_file for plan in plans} == {True, False} == {plan.reconciles for plan in plans}


def test_each_client_begins_with_an_order_and_nature_kills_in_many_ways() -> None:
    plan = draw(1)
    assert all(plan.of(client)[0].verb in (WorkerVerb.CREATE, WorkerVerb.VOLUME) for client in CLIENTS)
    kills = [operation for seed in range(1, 20) for operation in draw(seed).of(NATURE) if operation.verb in KILLS]
    assert {operation.reboots for operation in kills} == {True, False} and {operation.kept for operation in kills} == {
        0.0,
        0.5,
        1.0,
    }
