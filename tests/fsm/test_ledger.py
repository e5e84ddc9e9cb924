"""Changes to runs that the flow's own code, or a newer version of it, makes difficult."""

import pytest

from hawker.errors import Unavailable, WrongState
from hawker.fsm.contract import Abort, Done, EndedRun, Outcome, Step
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.fsm.transition import VAIN_RESUMES
from hawker.ids import RunId
from hawker.sim.harness.loop import LoopClock
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from tests.fsm.serving import (
    DEADLINE_S,
    FAST,
    THING,
    Ctx,
    Held,
    Job,
    accept,
    carry_out,
    flow,
    noting,
    outcomes,
    seen,
    serving,
    step,
    thing,
    undoing,
)

pytestmark = pytest.mark.anyio


async def stopped_at_b(store: MemoryStore) -> RunId:
    """A run that a daemon left at its second step."""
    held = Held()
    async with serving(store, flow("make", step("a"), Step("b", held), step("c"))) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
    return run_id


async def test_a_run_whose_step_is_gone_is_stuck_and_never_skipped() -> None:
    store, notes = MemoryStore(), list[str]()
    run_id = await stopped_at_b(store)
    async with serving(store, flow("make", step("a"), step("c")), notes=notes) as runner:
        stuck = await seen(runner, run_id, State.STUCK)
        assert (stuck.error, notes) == ("its step b is no longer in flow make", [])
        await runner.retry(run_id)
        await seen(runner, run_id, State.STUCK)
        await runner.abort(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.FAILED
    assert notes == ["undo a"]


async def test_a_stuck_run_goes_on_when_its_step_is_back() -> None:
    store, notes = MemoryStore(), list[str]()
    run_id = await stopped_at_b(store)
    async with serving(store, flow("make", step("z"))) as runner:
        await seen(runner, run_id, State.STUCK)
    async with serving(store, flow("make", step("a"), step("b")), notes=notes) as runner:
        await seen(runner, run_id, State.STUCK)
        await runner.retry(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE
    assert notes == ["b"]


async def test_a_run_goes_on_under_a_changed_flow_that_has_its_step() -> None:
    store, notes = MemoryStore(), list[str]()
    run_id = await stopped_at_b(store)
    async with serving(store, flow("make", step("a"), step("b"), step("new")), notes=notes) as runner:
        done = await runner.wait(run_id, DEADLINE_S)
    assert (done.state, notes) == (State.DONE, ["b", "new"])
    assert done.note.startswith("continued at b although the flow changed")


async def test_a_run_whose_flow_is_gone_is_stuck_and_can_be_aborted() -> None:
    store = MemoryStore()
    run_id = await stopped_at_b(store)
    async with serving(store, flow("other", step("x"))) as runner:
        stuck = await seen(runner, run_id, State.STUCK)
        assert stuck.error == "its flow make no longer exists"
        with pytest.raises(WrongState, match="no longer exists"):
            await runner.retry(run_id)
        await runner.abort(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.FAILED
        assert (await carry_out(store, runner, "other")).state is State.DONE


async def test_a_queued_run_whose_flow_is_gone_is_stuck_at_its_turn() -> None:
    store = MemoryStore()
    flows = [flow("make", step("a")), flow("gone", step("a"))]
    runner: Runner[list[str]] = Runner(store, flows, [], LoopClock())
    first, second = await accept(store, runner, "make"), await accept(store, runner, "gone")
    async with serving(store, flow("make", step("a"))) as later:
        assert (await later.wait(first, DEADLINE_S)).state is State.DONE
        await seen(later, second, State.STUCK)


async def test_a_run_resumed_after_the_host_was_restarted_makes_everything_again() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    async with serving(store, flow("make", step("a"), Step("b", held)), epoch="boot 1") as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
    async with serving(store, flow("make", step("a"), Step("b", noting("b"))), notes=notes, epoch="boot 2") as runner:
        done = await runner.wait(run_id, DEADLINE_S)
        assert outcomes(runner, run_id) == ["a 1 done", "a 1 done", "b 1 done"]
    assert (done.note, notes) == ("begun again: the host was restarted", ["a", "b"])


async def test_a_run_resumed_in_its_epoch_goes_on_where_it_was() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    make = flow("make", step("a"), Step("b", held))
    async with serving(store, make, epoch="boot 1") as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
    async with serving(
        store, flow("make", step("a"), Step("b", noting("b"), queue=None)), notes=notes, epoch="boot 1"
    ) as r:
        assert (await r.wait(run_id, DEADLINE_S)).note == ""
    assert notes == ["b"]


# A run that kills whoever takes it up.


async def killed(store: MemoryStore, *, at: str, orderly: bool = False) -> None:
    """One life of a daemon that ends while a run is at step `at`."""
    held = Held()
    rows = [Step(name, held if name == at else noting(name), undoing(name), backoff=FAST) for name in "abc"]
    async with serving(store, flow("make", *rows)) as runner:
        await held.reached.wait()
        if orderly:
            await runner.leave()


async def test_a_run_that_ends_every_daemon_is_stuck_and_the_node_comes_up() -> None:
    store, notes = MemoryStore(), list[str]()
    run_id = await stopped_at_b(store)
    for _ in range(VAIN_RESUMES):
        await killed(store, at="b")
    async with serving(store, flow("make", step("a"), step("b"), step("c")), notes=notes) as runner:
        stuck = await seen(runner, run_id, State.STUCK)
        assert stuck.error == "the daemon ended 6 times in a row in step b, attempt 1"
        assert notes == []
        await runner.retry(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE


async def test_a_recorded_step_is_progress() -> None:
    store = MemoryStore()
    run_id = await stopped_at_b(store)
    for at in "b" * (VAIN_RESUMES - 1) + "c" * VAIN_RESUMES:
        await killed(store, at=at)
    async with serving(store, flow("make", step("a"), step("b"), step("c"))) as runner:
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE


async def test_a_run_that_waits_for_a_child_is_not_to_blame_for_it() -> None:
    store, held = MemoryStore(), Held()
    child = thing(2)

    async def ask(context: Ctx) -> Outcome:
        return Done(await context.child("pull", child, Job()))

    parent_flow = flow("make", Step("ask", ask))
    async with serving(store, parent_flow, flow("pull", Step("fetch", held))) as runner:
        parent_id = await accept(store, runner, "make")
        await held.reached.wait()
    for _ in range(VAIN_RESUMES):
        held = Held()
        async with serving(store, parent_flow, flow("pull", Step("fetch", held))):
            await held.reached.wait()
    async with serving(store, parent_flow, flow("pull", step("fetch"))) as runner:
        (stuck,) = runner.list(flow="pull")
        assert stuck.state is State.STUCK
        await runner.retry(stuck.run_id)
        assert (await runner.wait(parent_id, DEADLINE_S)).state is State.DONE


async def test_a_run_whose_step_waits_for_others_is_not_to_blame() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("a"), Step("b", Held(), waits=True), step("c"))) as runner:
        run_id = await accept(store, runner, "make")
    for _ in range(2 * VAIN_RESUMES):
        held = Held()
        async with serving(store, flow("make", step("a"), Step("b", held, waits=True), step("c"))):
            await held.reached.wait()
    async with serving(store, flow("make", step("a"), step("b"), step("c"))) as runner:
        done = await runner.wait(run_id, DEADLINE_S)
    assert (done.state, done.error) == (State.DONE, None)


async def test_an_orderly_end_is_not_held_against_a_run() -> None:
    store = MemoryStore()
    run_id = await stopped_at_b(store)
    for _ in range(3 * VAIN_RESUMES):
        await killed(store, at="b", orderly=True)
    async with serving(store, flow("make", step("a"), step("b"), step("c"))) as runner:
        done = await runner.wait(run_id, DEADLINE_S)
    assert (done.state, done.resumes) == (State.DONE, 3 * VAIN_RESUMES + 1)


class Ending:
    """An `on_end` that fails until it is told not to."""

    def __init__(self) -> None:
        self.broken = True

    def __call__(self, tx: Tx, ended: EndedRun[Job]) -> None:
        if self.broken:
            raise RuntimeError("cannot write down")


async def test_an_on_end_that_raises_parks_the_run_with_nothing_undone() -> None:
    store, ending, notes = MemoryStore(), Ending(), list[str]()
    async with serving(store, flow("make", step("a"), step("b"), on_end=ending), notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        stuck = await seen(runner, run_id, State.STUCK)
        assert (stuck.error, notes) == ("RuntimeError: cannot write down", ["a", "b"])
        ending.broken = False
        await runner.retry(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE
    assert notes == ["a", "b", "b"]


async def test_an_on_end_that_raises_after_the_undo_parks_the_run_too() -> None:
    store, ending, notes = MemoryStore(), Ending(), list[str]()
    make = flow("make", step("a"), step("b", Abort("enough")), on_end=ending)
    async with serving(store, make, notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        await seen(runner, run_id, State.STUCK)
        ending.broken = False
        await runner.retry(run_id)
        failed = await runner.wait(run_id, DEADLINE_S)
    assert (failed.state, failed.error) == (State.FAILED, "enough")
    assert notes == ["a", "b", "undo b", "undo a", "undo a"]


async def test_a_commit_that_raises_is_a_failed_attempt() -> None:
    tries: list[int] = []

    def refuse(tx: Tx) -> None:
        if len(tries) < 2:
            raise RuntimeError("row is wrong")

    async def write(context: Ctx) -> Outcome:
        tries.append(context.attempt)
        return Done(commit=refuse)

    store = MemoryStore()
    async with serving(store, flow("make", Step("write", write, backoff=FAST))) as runner:
        done = await carry_out(store, runner, "make")
        assert outcomes(runner, done.run_id) == ["write 1 retry", "write 2 done"]
    assert done.state is State.DONE


async def test_a_cancel_that_cannot_be_committed_says_so_and_changes_nothing() -> None:
    store, held = MemoryStore(), Held()
    flows = flow("wait", Step("held", held)), flow("make", step("a"), on_end=Ending())
    async with serving(store, *flows) as runner:
        await accept(store, runner, "wait")
        queued = await accept(store, runner, "make")
        with pytest.raises(Unavailable, match="cannot write down"):
            await runner.cancel(queued, "enough")
        await seen(runner, queued, State.QUEUED)


async def test_ending_a_run_begins_the_next_in_the_same_transaction() -> None:
    store = MemoryStore()
    runner: Runner[list[str]] = Runner(store, [flow("make", Step("a", noting("a")))], [], LoopClock())
    first, second = await accept(store, runner, "make"), await accept(store, runner, "make")
    await runner.cancel(first, "enough")  # nobody serves, and there is nothing to undo: one commit
    states = {run_id: view and view.state for run_id in (first, second) for view in [runner.get(run_id)]}
    assert (states, store.commits) == ({first: State.CANCELLED, second: State.RUNNING}, 3)


async def test_a_flow_is_given_its_own_input_only() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("a"))) as runner:
        with pytest.raises(AssertionError, match="takes Job"):
            await store.write(lambda tx: runner.accept(tx, "make", THING, THING))  # a Resource is no Job
