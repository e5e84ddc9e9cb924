"""Records of steps that are written with the next one of their run: when they are there, and what is undone."""

import pytest

from hawker.fsm.contract import Abort, Done, Step
from hawker.fsm.run import State
from hawker.store.memory_store import MemoryStore, StoreFaults
from tests.fsm.serving import (
    DEADLINE_S,
    FAST,
    Ctx,
    Held,
    accept,
    carry_out,
    flow,
    noting,
    outcomes,
    serving,
    step,
)
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


def late(name: str) -> Step:
    return step(name, Done(name, late=True))


async def written_for(*steps: Step) -> tuple[int, list[str]]:
    """How many transactions a run of these steps takes, its acceptance included, and its history."""
    store = MemoryStore()
    async with serving(store, flow("make", *steps)) as runner:
        before = store.commits
        view = await carry_out(store, runner, "make")
        return store.commits - before, list(outcomes(runner, view.run_id))


async def test_late_records_share_the_transaction_of_the_next_record() -> None:
    loose, history = await written_for(step("a"), step("b"), step("c"))
    shared, same_history = await written_for(late("a"), late("b"), step("c"))
    assert (loose, shared) == (4, 2)
    assert history == same_history == ["a 1 done", "b 1 done", "c 1 done"]


async def test_a_last_step_is_recorded_though_it_is_late() -> None:
    written, history = await written_for(step("a"), late("b"))
    assert (written, history) == (3, ["a 1 done", "b 1 done"])


async def test_a_later_step_sees_what_a_late_one_recorded() -> None:
    async def read(context: Ctx) -> Done:
        return Done(context.result("a", str))

    store = MemoryStore()
    async with serving(store, flow("make", late("a"), Step("read", read))) as runner:
        assert (await carry_out(store, runner, "make")).result == "a"


async def test_a_failure_undoes_late_steps_as_well() -> None:
    notes: list[str] = []
    store = MemoryStore()
    async with serving(store, flow("make", late("a"), late("b"), step("c", Abort("no"))), notes=notes) as runner:
        view = await carry_out(store, runner, "make")
    assert view.state is State.FAILED
    assert notes == ["a", "b", "c", "undo c", "undo b", "undo a"]


async def test_a_run_that_is_cancelled_undoes_steps_that_were_not_recorded_yet() -> None:
    held, notes, store = Held(), list[str](), MemoryStore()
    last = Step("held", held, undo=None, backoff=FAST)
    async with serving(store, flow("make", late("a"), late("b"), last), notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        await runner.cancel(run_id, "no more")
        view = await runner.wait(run_id, DEADLINE_S)
        history = outcomes(runner, run_id)
    assert view.state is State.CANCELLED
    assert notes == ["a", "b", "undo b", "undo a"]
    assert history == ["a 1 done", "b 1 done", "b 1 undone", "a 1 undone"]


async def test_a_late_record_is_there_soon_while_the_next_step_goes_on() -> None:
    held, store = Held(), MemoryStore()
    async with serving(store, flow("make", late("a"), Step("held", held))) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        assert await eventually(lambda: outcomes(runner, run_id)) == ["a 1 done"]
        view = runner.get(run_id)
    assert view is not None and view.step == "held"


async def test_a_daemon_that_leaves_in_order_repeats_no_late_step() -> None:
    held, notes, store = Held(), list[str](), MemoryStore()
    async with serving(store, flow("make", late("a"), Step("held", held)), notes=notes) as runner:
        await accept(store, runner, "make")
        await held.reached.wait()
        await runner.leave()
    async with serving(store, flow("make", late("a"), Step("held", noting("held"))), notes=notes) as runner:
        assert await eventually(lambda: "held" in notes)
    assert notes == ["a", "held"]


async def test_a_crash_goes_back_to_the_first_step_that_is_not_recorded() -> None:
    held, notes, store = Held(), list[str](), MemoryStore()
    async with serving(store, flow("make", late("a"), late("b"), Step("held", held)), notes=notes) as runner:
        await accept(store, runner, "make")
        await held.reached.wait()
        survivor = store.crash(keep=store.pending)
    async with serving(survivor, flow("make", late("a"), late("b"), step("held")), notes=notes) as runner:
        await eventually(lambda: "held" in notes)
    assert notes == ["a", "b", "a", "b", "held"]


async def test_a_run_that_daemons_died_at_records_each_step_when_it_is_done() -> None:
    notes, store = list[str](), MemoryStore()
    async with serving(store, flow("make", late("a"), Step("held", Held())), notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        await eventually(lambda: notes == ["a"])
        store = store.crash(keep=0)
    held = Held()
    async with serving(store, flow("make", late("a"), Step("held", held)), notes=notes) as runner:
        await held.reached.wait()
        assert outcomes(runner, run_id) == ["a 1 done"]


async def test_a_store_that_refuses_once_loses_no_late_record() -> None:
    async def history(*fail: int) -> tuple[int, list[str]]:
        store = MemoryStore(faults=StoreFaults(fail=frozenset(fail)))
        async with serving(store, flow("make", late("a"), step("b"))) as runner:
            view = await carry_out(store, runner, "make")
            return store.commits, list(outcomes(runner, view.run_id))

    commits, told = await history()
    assert await history(commits) == (commits, told)
    assert told == ["a 1 done", "b 1 done"]
