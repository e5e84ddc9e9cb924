"""What has happened is recorded, however long the store takes to be able to."""

import pytest

from hawker.clock import ManualClock
from hawker.fsm.contract import Abort, Step
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.store.memory_store import MemoryStore, StoreFaults
from tests.fsm.serving import (
    DEADLINE_S,
    FAST,
    Ctx,
    Held,
    accept,
    carry_out,
    failing,
    flow,
    outcomes,
    serving,
    step,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("broken", range(3, 9))
async def test_a_store_that_cannot_write_makes_a_run_wait_and_not_fail(broken: int) -> None:
    """Commit 1 resumes, 2 accepts, 3 to 8 are the run's own."""
    store, notes = MemoryStore(faults=StoreFaults(fail=frozenset({broken}))), list[str]()
    make = flow("make", step("a"), step("b"), step("c", Abort("enough")))
    async with serving(store, make, notes=notes, clock=ManualClock()) as runner:
        view = await carry_out(store, runner, "make")
        history = outcomes(runner, view.run_id)
    assert view.state is State.FAILED
    assert notes == ["a", "b", "c", "undo c", "undo b", "undo a"]
    assert history == ["a 1 done", "b 1 done", "c 1 failed", "c 1 undone", "b 1 undone", "a 1 undone"]


async def test_a_step_that_gave_up_gets_no_other_chance_after_a_crash() -> None:
    held = Held()

    async def undo(context: Ctx) -> None:
        await held(context)

    store, notes = MemoryStore(), list[str]()
    flaky = Step("b", failing(Abort("enough")), backoff=FAST)  # it would succeed if it were called again
    async with serving(store, flow("make", Step("a", step("a").do, undo), flaky)) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
    async with serving(store.crash(keep=0), flow("make", step("a"), flaky), notes=notes) as later:
        assert (await later.wait(run_id, DEADLINE_S)).state is State.FAILED
    assert notes == ["undo a"]


async def test_step_records_are_left_to_the_next_durable_commit() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("a"), step("b"))) as runner:
        await carry_out(store, runner, "make")
    assert store.pending == 2


def test_a_runner_needs_no_loop_to_be_made() -> None:
    assert Runner(MemoryStore(), [flow("make", step("a"))], [], ManualClock()).list() == []
