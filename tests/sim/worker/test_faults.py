"""Each kind of blow lands, and a sound worker stands it."""

import pytest

from hawker.sim.harness.trace import Kind
from hawker.sim.worker.operation import Deed, Verb
from hawker.sim.worker.simulation import run
from tests.sim.played import blow, call, order, plan


@pytest.mark.parametrize(
    ("blown", "said"),
    [
        (blow(Verb.END, 5, 3, label="ann-1"), "the workload of ann-1 ends with 3"),
        (blow(Verb.STUBBORN, 5, label="ann-1"), "ann-1 ignores signals"),
        (blow(Verb.CLOCK, 5, -3600.0), "the clock jumps by -3600 s"),
        (blow(Verb.DISK_FULL, 9.5, 5), "the disk is full for 5 s"),
        (blow(Verb.DISK_SLOW, 9.5, 5), "the disk is slow for 5 s"),
        (blow(Verb.DISK_FAILING, 9.5, 5), "fails now and then for 5 s"),
        (blow(Verb.DRIVER_ERROR, 5, 1, word="stop"), "next stop will fail after its effect"),
        (blow(Verb.DRIVER_SLOW, 5, 100.0, word="stop"), "next stop takes 100 s"),
        (blow(Verb.HOST_ERROR, 5, 0, word="unmount"), "next unmount will fail"),
        (blow(Verb.HOST_ERROR, 5, 0, word="ensure"), "next ensure will fail"),
        (blow(Verb.PULL_ERROR, 0.5, 2), "next 2 pulls will fail"),
        (blow(Verb.PULL_SLOW, 0.5, 30.0), "pulls take 30 s"),
    ],
    ids=lambda value: value.verb.value if isinstance(value, Deed) else "",
)
def test_a_blow_lands_and_nothing_is_lost(blown: Deed, said: str) -> None:
    calls = (call(Verb.STOP, 10, amount=5), call(Verb.START, 100), call(Verb.DESTROY, 200, word="force"))
    outcome = run(plan(order(), blown, *calls))
    told = [line.text for line in outcome.lines if line.kind is Kind.NATURE]
    assert len(told) == outcome.faults == 1 and said in told[0]
    assert outcome.found == ()


def test_a_restart_that_was_asked_for_is_no_crash() -> None:
    outcome = run(plan(order(), blow(Verb.TERMINATE, 5)))
    assert (outcome.crashes, outcome.lives) == (0, 3)


def test_one_end_at_a_time() -> None:
    twice = (blow(Verb.KILL_AT_EDGE, 0.5, 1000), blow(Verb.KILL_AT_AWAIT, 0.6, 1))
    assert run(plan(order(), *twice)).crashes == 0
