"""Each kind of blow lands, and a sound worker stands it."""

import pytest

from hawker.sim.harness.trace import Speaker
from hawker.sim.worker.plan import WorkerOperation, WorkerVerb
from hawker.sim.worker.simulation import play
from tests.sim.played import blow, call, order, plan


@pytest.mark.parametrize(
    ("blown", "said"),
    [
        (blow(WorkerVerb.END, 5, 3, label="ann-1"), "the workload of ann-1 ends with 3"),
        (blow(WorkerVerb.STUBBORN, 5, label="ann-1"), "ann-1 ignores signals"),
        (blow(WorkerVerb.CLOCK, 5, -3600.0), "the clock jumps by -3600 s"),
        (blow(WorkerVerb.DISK_FULL, 9.5, 5), "the disk is full for 5 s"),
        (blow(WorkerVerb.DISK_SLOW, 9.5, 5), "the disk is slow for 5 s"),
        (blow(WorkerVerb.DISK_FAILING, 9.5, 5), "fails now and then for 5 s"),
        (blow(WorkerVerb.DRIVER_ERROR, 5, 1, word="stop"), "next stop will fail after its effect"),
        (blow(WorkerVerb.DRIVER_SLOW, 5, 100.0, word="stop"), "next stop takes 100 s"),
        (blow(WorkerVerb.HOST_ERROR, 5, 0, word="unmount"), "next unmount will fail"),
        (blow(WorkerVerb.HOST_ERROR, 5, 0, word="ensure"), "next ensure will fail"),
        (blow(WorkerVerb.PULL_ERROR, 0.5, 2), "next 2 pulls will fail"),
        (blow(WorkerVerb.PULL_SLOW, 0.5, 30.0), "pulls take 30 s"),
    ],
    ids=lambda value: value.verb.value if isinstance(value, WorkerOperation) else "",
)
def test_a_blow_lands_and_nothing_is_lost(blown: WorkerOperation, said: str) -> None:
    calls = (
        call(WorkerVerb.STOP, 10, amount=5),
        call(WorkerVerb.START, 100),
        call(WorkerVerb.DESTROY, 200, word="force"),
    )
    outcome = play(plan(order(), blown, *calls))
    told = [line.text for line in outcome.lines if line.kind is Speaker.NATURE]
    assert len(told) == outcome.faults == 1 and said in told[0]
    assert outcome.found == ()


def test_a_restart_that_was_asked_for_is_no_crash() -> None:
    outcome = play(plan(order(), blow(WorkerVerb.TERMINATE, 5)))
    assert (outcome.crashes, outcome.lives) == (0, 3)


def test_daemon_is_killed_by_one_fault_at_a_time() -> None:
    twice = (blow(WorkerVerb.KILL_AT_EDGE, 0.5, 1000), blow(WorkerVerb.KILL_AT_AWAIT, 0.6, 1))
    assert play(plan(order(), *twice)).crashes == 0
