"""How a run goes through its steps: retries, timeouts, undo, cancel, deadline, queues, children, hand-over."""

from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.errors import DeadlineExceeded, NotFound, Unavailable
from hawker.fair.threads import whose
from hawker.fair.turns import Share
from hawker.fsm.contract import Abort, Backoff, Done, HandOff, Outcome, Retry, Step
from hawker.fsm.run import Run, State
from hawker.fsm.runner import Runner
from hawker.store.contract import Bucket
from hawker.store.memory_store import MemoryStore, StoreFaults
from tests.fsm.serving import (
    DEADLINE_S,
    FAST,
    THING,
    Ctx,
    Held,
    Job,
    accept,
    carry_out,
    failing,
    flow,
    noting,
    outcomes,
    run_once,
    seen,
    serving,
    step,
    thing,
    undoing,
)
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

WORDS = Bucket("words", str)
Undo = Callable[[Ctx], Awaitable[None]]


def undo_failing(times: int, word: str) -> Undo:
    left = [None] * times

    async def undo(context: Ctx) -> None:
        context.deps.append(f"undo {word}")
        if left:
            left.pop()
            raise RuntimeError("cannot undo")

    return undo


async def test_commit_of_a_step_is_written_with_its_record() -> None:
    async def write(context: Ctx) -> Outcome:
        return Done(commit=lambda tx: tx.put(WORDS, context.resource.id, "written"))

    store = MemoryStore()
    async with serving(store, flow("make", Step("write", write))) as runner:
        await carry_out(store, runner, "make")
    assert store.get(WORDS, THING.id) == "written"


async def test_a_durable_step_is_on_disk_when_it_is_recorded() -> None:
    held = Held()
    sure = Step("sure", noting("sure"), durable=True)
    store = MemoryStore()
    async with serving(store, flow("make", step("loose"), sure, Step("held", held))) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        assert store.pending == 0
    survivor = store.crash(keep=0)
    assert [line.step for line in Runner(survivor, [], [], SystemClock()).history(run_id)] == ["loose", "sure"]


# Retries and errors.


async def test_a_step_is_tried_again_until_it_holds() -> None:
    flaky = Step("sew", failing(Retry("no thread"), Retry("no needle", after_s=0)), backoff=FAST)
    view, history = await run_once(flow("make", flaky))
    assert (view.state, history) == (State.DONE, ["sew 1 retry", "sew 2 retry", "sew 3 done"])


async def test_used_up_attempts_undo_and_fail() -> None:
    notes: list[str] = []
    flaky = Step("sew", failing(*[Retry("no thread")] * 9), undoing("sew"), backoff=FAST)
    view, history = await run_once(flow("make", step("cut"), flaky), notes=notes)
    assert (view.state, view.error) == (State.FAILED, "no thread")
    assert history == ["cut 1 done", *[f"sew {n} retry" for n in (1, 2, 3)], "sew 1 undone", "cut 1 undone"]
    assert notes == ["cut", "undo sew", "undo cut"]


async def test_an_unexpected_exception_is_tried_again() -> None:
    view, history = await run_once(flow("make", Step("sew", failing(KeyError("thread")), backoff=FAST)))
    assert (view.state, history) == (State.DONE, ["sew 1 retry", "sew 2 done"])


async def test_an_error_that_a_retry_helps_is_tried_again() -> None:
    view, history = await run_once(flow("make", Step("sew", failing(Unavailable("a moment")), backoff=FAST)))
    assert (view.state, history) == (State.DONE, ["sew 1 retry", "sew 2 done"])


async def test_an_error_that_a_retry_does_not_help_gives_up_at_once() -> None:
    notes: list[str] = []
    hopeless = Step("sew", failing(NotFound("no cloth")), undoing("sew"), backoff=FAST)
    view, _ = await run_once(flow("make", step("cut"), hopeless), notes=notes)
    assert isinstance(view.failure, NotFound)
    assert notes == ["cut", "undo sew", "undo cut"]


async def test_an_error_inside_a_steps_own_task_group_counts_as_itself() -> None:
    group = ExceptionGroup("many", [ExceptionGroup("one", [NotFound("no cloth")])])
    view, history = await run_once(flow("make", Step("sew", failing(group), backoff=FAST)))
    assert (view.error, history) == ("no cloth", ["sew 1 failed"])


async def test_abort_undoes_the_step_itself_and_those_before_it_in_reverse() -> None:
    notes: list[str] = []
    view, history = await run_once(flow("make", step("a"), step("b"), step("c", Abort("enough"))), notes=notes)
    assert (view.state, view.error) == (State.FAILED, "enough")
    assert notes == ["a", "b", "c", "undo c", "undo b", "undo a"]
    assert history == ["a 1 done", "b 1 done", "c 1 failed", "c 1 undone", "b 1 undone", "a 1 undone"]


async def test_steps_without_undo_are_passed_over() -> None:
    notes: list[str] = []
    plain = Step("b", noting("b"))
    await run_once(flow("make", step("a"), plain, step("c", Abort("enough"))), notes=notes)
    assert notes == ["a", "b", "c", "undo c", "undo a"]


async def test_too_long_counts_as_a_failed_attempt() -> None:
    class Slow:
        times = 1

    async def slow(context: Ctx) -> Outcome:
        Slow.times -= 1
        await (anyio.sleep_forever() if Slow.times >= 0 else anyio.lowlevel.checkpoint())
        return Done()

    store = MemoryStore()
    async with serving(store, flow("make", Step("sew", slow, timeout_s=0.3, backoff=FAST))) as runner:
        view = await carry_out(store, runner, "make")
        first = runner.history(view.run_id)[0]
    assert view.state is State.DONE
    assert first.error == "TimeoutError: took longer than 0.3 s"


async def test_a_result_that_cannot_be_stored_is_a_failed_attempt() -> None:
    view, history = await run_once(flow("make", Step("sew", failing(*[Done(object())] * 9), backoff=FAST)))
    assert view.state is State.FAILED and "object" in (view.error or "")
    assert history[-1] == "sew 3 retry"


# Undo.


async def test_an_undo_is_tried_again() -> None:
    notes: list[str] = []
    stubborn = Step("a", noting("a"), undo_failing(2, "a"), backoff=FAST)
    view, history = await run_once(flow("make", stubborn, step("b", Abort("enough"))), notes=notes)
    assert view.state is State.FAILED
    assert history[3:] == ["a 1 undo_failed", "a 2 undo_failed", "a 3 undone"]


async def test_an_undo_knows_whether_its_own_step_had_finished() -> None:
    seen: list[bool] = []

    async def look(context: Ctx) -> None:
        seen.append(context.finished("a"))

    await run_once(flow("make", Step("a", noting("a"), look), step("b", Abort("enough"))))
    await run_once(flow("make", Step("a", failing(NotFound("no")), look)))
    assert seen == [True, False]


async def test_an_undo_that_never_succeeds_leaves_the_run_stuck_until_an_operator_retries() -> None:
    store, notes = MemoryStore(), list[str]()
    stubborn = Step("b", noting("b"), undo_failing(3, "b"), backoff=FAST)
    async with serving(store, flow("make", step("a"), stubborn, step("c", Abort("enough"))), notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        stuck = await seen(runner, run_id, State.STUCK)
        assert stuck.error == "undo of b failed: RuntimeError: cannot undo"
        active = runner.active(THING)
        assert active is not None and active.run_id == run_id
        await runner.retry(run_id)
        failed = await runner.wait(run_id, DEADLINE_S)
    assert (failed.state, failed.error) == (State.FAILED, "enough")
    assert notes[-2:] == ["undo b", "undo a"]


async def test_an_operator_can_give_up_an_undo_that_is_stuck() -> None:
    store, notes = MemoryStore(), list[str]()
    stubborn = Step("b", noting("b"), undo_failing(99, "b"), backoff=FAST)
    async with serving(store, flow("make", step("a"), stubborn, step("c", Abort("enough"))), notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        await seen(runner, run_id, State.STUCK)
        await runner.abort(run_id)
        failed = await runner.wait(run_id, DEADLINE_S)
    assert (failed.state, failed.error, notes[-1]) == (State.FAILED, "enough", "undo a")


# Cancel and deadline.


async def test_cancel_stops_the_running_step_and_undoes() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    async with serving(store, flow("make", step("a"), Step("b", held, undoing("b"))), notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        await runner.cancel(run_id, "changed my mind")
        view = await runner.wait(run_id, DEADLINE_S)
    assert (view.state, view.error) == (State.CANCELLED, "failed_precondition: cancelled: changed my mind")
    assert notes == ["a", "undo b", "undo a"]


async def test_a_cancel_survives_a_crash_right_after_it() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    make = flow("make", step("a"), Step("b", held, undoing("b")))
    async with serving(store, make, notes=notes) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        await runner.cancel(run_id, "changed my mind")
        survivor = store.crash(keep=0)
    async with serving(survivor, make, notes=notes) as later:
        assert (await later.wait(run_id, DEADLINE_S)).state is State.CANCELLED
    assert notes[0] == "a" and notes[-2:] == ["undo b", "undo a"]


async def test_cancelling_a_queued_run_takes_it_out_of_the_line() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    async with serving(store, flow("wait", Step("held", held)), flow("make", step("a")), notes=notes) as runner:
        first = await accept(store, runner, "wait")
        second, third = await accept(store, runner, "make"), await accept(store, runner, "make")
        await runner.cancel(second, "not needed")
        assert (await runner.wait(second, DEADLINE_S)).state is State.CANCELLED
        await runner.cancel(first, "enough")
        assert (await runner.wait(third, DEADLINE_S)).state is State.DONE
    assert notes == ["a"]


async def test_cancelling_a_delayed_run_ends_it() -> None:
    store, notes = MemoryStore(), list[str]()
    async with serving(store, flow("make", step("a")), notes=notes) as runner:
        run_id = await accept(store, runner, "make", delay_s=3600)
        await runner.cancel(run_id, "not needed")
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.CANCELLED
    assert notes == []


async def test_a_run_past_its_deadline_is_undone_and_fails() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    make = flow("make", step("a"), Step("b", held, undoing("b")), deadline_s=0.5)
    async with serving(store, make, notes=notes) as runner:
        view = await carry_out(store, runner, "make")
    assert isinstance(view.failure, DeadlineExceeded)
    assert notes == ["a", "undo b", "undo a"]


async def test_a_deadline_holds_while_a_run_waits_for_its_turn() -> None:
    store, notes = MemoryStore(), list[str]()
    async with serving(store, flow("wait", Step("held", Held())), flow("make", step("a")), notes=notes) as runner:
        await accept(store, runner, "wait")
        run_id = await accept(store, runner, "make", deadline_s=0.02)
        assert isinstance((await runner.wait(run_id, DEADLINE_S)).failure, DeadlineExceeded)
    assert notes == []


async def test_a_deadline_holds_between_attempts() -> None:
    slow = Step("sew", failing(*[Retry("no thread")] * 9), backoff=Backoff(first_s=3600, cap_s=3600))
    view, _ = await run_once(flow("make", slow, deadline_s=0.05))
    assert isinstance(view.failure, DeadlineExceeded)


# Named queues.


async def test_a_named_queue_limits_how_many_steps_run_at_once() -> None:
    count: Counter[str] = Counter()
    gate = anyio.Event()

    async def narrow(context: Ctx) -> Outcome:
        count["now"] += 1
        count["most"] = max(count["most"], count["now"])
        await gate.wait()
        count["now"] -= 1
        return Done()

    store = MemoryStore()
    async with serving(store, flow("pull", Step("fetch", narrow, queue="pulls")), queues={"pulls": 2}) as runner:
        runs = [await accept(store, runner, "pull", thing(number)) for number in range(8)]
        await eventually(lambda: len([view for view in runner.list() if view.waiting_for == "queue pulls"]) == 6)
        gate.set()
        for run_id in runs:
            assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE
    assert count["most"] == 2


async def test_a_run_that_waits_for_a_queue_says_so_and_can_be_cancelled() -> None:
    store, held = MemoryStore(), Held()
    flows = flow("pull", Step("fetch", held, queue="pulls")), flow("other", Step("fetch", noting("x"), queue="pulls"))
    async with serving(store, *flows, queues={"pulls": 1}) as runner:
        first = await accept(store, runner, "pull", thing(1))
        await held.reached.wait()
        second = await accept(store, runner, "other", thing(2))
        view = await seen(runner, second, State.WAITING)
        assert view.waiting_for == "queue pulls"
        await runner.cancel(second, "enough")
        assert (await runner.wait(second, DEADLINE_S)).state is State.CANCELLED
        await runner.cancel(first, "enough")
        third = await carry_out(store, runner, "other", thing(3))
        assert third.state is State.DONE


@pytest.mark.parametrize("turns", range(8))
async def test_a_step_is_not_called_after_a_cancel_that_came_while_its_slot_was_given(turns: int) -> None:
    store, gate, order = MemoryStore(), anyio.Event(), list[str]()

    async def first(context: Ctx) -> Outcome:
        await gate.wait()
        return Done()

    async def second(context: Ctx) -> Outcome:
        order.append("called")
        return Done()

    flows = flow("one", Step("fetch", first, queue="pulls")), flow("two", Step("fetch", second, queue="pulls"))
    async with serving(store, *flows, queues={"pulls": 1}) as runner:
        await accept(store, runner, "one", thing(1))
        run_id = await accept(store, runner, "two", thing(2))
        await seen(runner, run_id, State.WAITING)
        gate.set()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        await runner.cancel(run_id, "enough")
        order.append("cancelled")
        assert (await runner.wait(run_id, DEADLINE_S)).state in (State.CANCELLED, State.DONE)
    assert order in (["cancelled"], ["called", "cancelled"])


# Hand-over.


def handing_over(to: str) -> Step:
    async def do(context: Ctx) -> Outcome:
        return HandOff(to, Job(size=7), commit=lambda tx: tx.put(WORDS, "handed", "over"))

    return Step("over", do, backoff=FAST)


async def test_a_hand_off_goes_on_as_another_flow_before_those_in_line() -> None:
    async def read(context: Ctx) -> Outcome:
        context.deps.append(f"size {context.input.size}")
        return Done("end")

    store, notes = MemoryStore(), list[str]()
    flows = flow("make", handing_over("start")), flow("start", Step("read", read)), flow("mend", step("patch"))
    async with serving(store, *flows, notes=notes) as runner:
        runs: list[object] = await store.write(
            lambda tx: [runner.accept(tx, name, THING, Job()) for name in ("make", "mend")]
        )
        first, last = (view.run_id for view in reversed(runner.list()))
        done = await runner.wait(first, DEADLINE_S)
        assert done.handed_to is not None
        heir = await runner.wait(done.handed_to, DEADLINE_S)
        await runner.wait(last, DEADLINE_S)
    assert runs == [first, last]
    assert (done.state, heir.handed_from, notes) == (State.DONE, first, ["size 7", "patch"])
    assert store.get(WORDS, "handed") == "over"


async def test_a_hand_off_to_no_flow_fails_the_attempt() -> None:
    view, history = await run_once(flow("make", handing_over("nowhere")))
    assert view.state is State.FAILED and "nowhere" in (view.error or "")
    assert history == ["over 1 retry", "over 2 retry", "over 3 retry"]


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


async def test_a_queue_goes_round_by_owner() -> None:
    """One that waits for ever takes the slots of its owner, and no others."""
    begun, gate = Counter[str](), anyio.Event()

    async def fetch(context: Ctx) -> Outcome:
        begun[whose()] += 1
        await gate.wait()
        return Done()

    def owner_of(run: Run) -> str:
        return "beta" if run.resource == thing(3) else "alpha"

    store = MemoryStore()
    share = Share(name="pulls", total=3, each=2, waiting=10, key="organization", over="it waits")
    pull = flow("pull", Step("fetch", fetch, queue="pulls"))
    async with serving(store, pull, queues={"pulls": share}, owner_of=owner_of) as runner:
        runs = [await accept(store, runner, "pull", thing(number)) for number in range(4)]
        await eventually(lambda: begun == {"alpha": 2, "beta": 1})
        assert [(queue.active, queue.waiting) for queue in runner.queues()] == [(3, 1)]
        gate.set()
        for run_id in runs:
            assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE
