"""The engine as the worker uses it: accepting, waiting, looking, stopping, and what a new daemon finds."""

import anyio
import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.errors import Conflict, DeadlineExceeded, NotFound, WrongState
from hawker.fsm.contract import Abort, Backoff, Done, EndedRun, HandOff, Outcome, Resource, Retry, Step, WhenBusy
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.ids import RunId
from hawker.sim.harness.loop import LoopClock
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore, StoreFaults
from tests.fsm.serving import (
    DEADLINE_S,
    THING,
    Ctx,
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
)

pytestmark = pytest.mark.anyio

WORDS = Bucket("words", str)


class Gate:
    """A step that waits to be let through."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.open = anyio.Event()

    async def __call__(self, context: Ctx) -> Outcome:
        self.reached.set()
        await self.open.wait()
        return Done()


async def test_a_run_does_its_steps_in_order_and_ends() -> None:
    store, notes = MemoryStore(), list[str]()
    async with serving(store, flow("make", step("cut"), step("sew")), notes=notes) as runner:
        done = await carry_out(store, runner, "make")
    assert (done.state, notes, done.finished) == (State.DONE, ["cut", "sew"], ("cut", "sew"))
    assert done.result == "sew"
    assert outcomes(runner, done.run_id) == ["cut 1 done", "sew 1 done"]


async def test_a_run_is_shown_with_its_input_and_times() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("cut"), deadline_s=60)) as runner:
        done = await carry_out(store, runner, "make")
    assert done.input == {"size": 0}
    assert done.started_at is not None and done.ended_at is not None and done.deadline_at is not None
    assert done.accepted_at <= done.started_at <= done.ended_at < done.deadline_at


async def test_a_rolled_back_accept_leaves_nothing() -> None:
    def fail(tx: Tx) -> None:
        runner.accept(tx, "make", THING, Job())
        raise Conflict("no")

    store = MemoryStore()
    async with serving(store, flow("make", step("cut"))) as runner:
        with pytest.raises(Conflict):
            await store.write(fail)
        assert runner.list() == []
        assert runner.active(THING) is None


async def test_a_run_accepted_before_serving_begins_with_it() -> None:
    store = MemoryStore()
    make = flow("make", step("cut"))
    run_id = await accept(store, Runner(store, [make], [], LoopClock()), "make")
    async with serving(store, make) as runner:
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE


async def test_a_stopped_daemon_leaves_the_run_to_the_next_one() -> None:
    store, gate, notes = MemoryStore(), Gate(), list[str]()
    make = flow("make", step("cut"), Step("sew", gate))
    async with serving(store, make, notes=notes) as first:
        run_id = await accept(store, first, "make")
        await gate.reached.wait()
    gate.open.set()
    async with serving(store, make, notes=notes) as second:
        done = await second.wait(run_id, DEADLINE_S)
    assert (done.state, done.resumes, notes) == (State.DONE, 1, ["cut"])


async def test_runs_of_one_resource_go_one_after_the_other() -> None:
    store, gate, notes = MemoryStore(), Gate(), list[str]()
    flows = flow("wait", Step("gate", gate)), flow("make", step("cut")), flow("mend", step("patch"))
    async with serving(store, *flows, notes=notes) as runner:
        await accept(store, runner, "wait")
        await gate.reached.wait()
        second, third = await accept(store, runner, "make"), await accept(store, runner, "mend")
        view = runner.get(second)
        assert view is not None and (view.state, view.waiting_for) == (State.QUEUED, "turn")
        assert notes == []
        gate.open.set()
        await runner.wait(third, DEADLINE_S)
    assert notes == ["cut", "patch"]


async def test_runs_of_different_resources_go_at_once() -> None:
    store, gates = MemoryStore(), [Gate(), Gate()]
    flows = [flow(f"wait_{number}", Step("gate", gate)) for number, gate in enumerate(gates)]
    async with serving(store, *flows) as runner:
        for number in range(2):
            await accept(store, runner, f"wait_{number}", thing(number))
        for gate in gates:
            await gate.reached.wait()


async def test_resources_whose_ids_begin_alike_are_not_confused() -> None:
    store, gate = MemoryStore(), Gate()
    async with serving(store, flow("wait", Step("gate", gate)), flow("make", step("cut"))) as runner:
        held = await accept(store, runner, "wait", Resource(kind="thing", id="a"))
        await gate.reached.wait()
        assert (await carry_out(store, runner, "make", Resource(kind="thing", id="a/b"))).state is State.DONE
        assert [view.run_id for view in runner.list(resource=Resource(kind="thing", id="a"))] == [held]


async def test_refuse_is_a_conflict_while_busy_and_no_longer_after() -> None:
    store, gate = MemoryStore(), Gate()
    async with serving(store, flow("wait", Step("gate", gate))) as runner:
        first = await accept(store, runner, "wait")
        with pytest.raises(Conflict, match="thing a/1 is busy: wait is under way"):
            await accept(store, runner, "wait", when_busy=WhenBusy.REFUSE)
        gate.open.set()
        await runner.wait(first, DEADLINE_S)
        await accept(store, runner, "wait", when_busy=WhenBusy.REFUSE)


async def test_join_gives_the_active_run_of_the_same_flow() -> None:
    store, gate = MemoryStore(), Gate()
    async with serving(store, flow("wait", Step("gate", gate)), flow("make", step("cut"))) as runner:
        first = await accept(store, runner, "wait")
        assert await accept(store, runner, "wait", when_busy=WhenBusy.JOIN) == first
        other = await accept(store, runner, "make", when_busy=WhenBusy.JOIN)
        assert other != first
        assert [view.run_id for view in runner.list(resource=THING)] == [other, first]


async def test_a_line_that_is_too_long_refuses() -> None:
    store, gate = MemoryStore(), Gate()
    async with serving(store, flow("wait", Step("gate", gate))) as runner:
        for _ in range(100):
            await accept(store, runner, "wait")
        with pytest.raises(Conflict, match="too many operations waiting"):
            await accept(store, runner, "wait")


async def test_a_delayed_run_does_not_hold_its_resource() -> None:
    store, notes = MemoryStore(), list[str]()
    async with serving(store, flow("later", step("rest")), flow("make", step("cut")), notes=notes) as runner:
        later = await accept(store, runner, "later", delay_s=1.0)
        view = runner.get(later)
        assert view is not None and view.state is State.DELAYED
        assert runner.active(THING) is None
        await carry_out(store, runner, "make")
        assert (await runner.wait(later, DEADLINE_S)).state is State.DONE
    assert notes == ["cut", "rest"]


async def test_a_delayed_run_that_is_due_gets_in_line() -> None:
    store, gate, notes = MemoryStore(), Gate(), list[str]()
    async with serving(store, flow("wait", Step("gate", gate)), flow("later", step("rest")), notes=notes) as runner:
        await accept(store, runner, "wait")
        later = await accept(store, runner, "later", delay_s=0.01)
        await seen(runner, later, State.QUEUED)
        gate.open.set()
        await runner.wait(later, DEADLINE_S)
    assert notes == ["rest"]


async def test_a_delay_goes_on_across_a_restart() -> None:
    store, clock = MemoryStore(), LoopClock()
    later = flow("later", step("rest"))
    run_id = await accept(store, Runner(store, [later], [], clock), "later", delay_s=0.1)
    accepted_at = clock.now()
    async with serving(store, later, clock=clock) as runner:
        done = await runner.wait(run_id, DEADLINE_S)
    assert done.started_at is not None and done.started_at >= accepted_at + 0.05


async def test_wait_gives_up_at_its_timeout() -> None:
    store = MemoryStore()
    async with serving(store, flow("wait", Step("gate", Gate()))) as runner:
        run_id = await accept(store, runner, "wait")
        with pytest.raises(DeadlineExceeded):
            await runner.wait(run_id, 0.01)


async def test_an_unknown_run_is_not_found() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("cut"))) as runner:
        unknown = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")
        assert runner.get(unknown) is None
        assert runner.history(unknown) == []
        for call in (
            runner.wait(unknown, 1.0),
            runner.cancel(unknown, "x"),
            runner.retry(unknown),
            runner.abort(unknown),
        ):
            with pytest.raises(NotFound):
                await call


async def test_list_is_newest_first_and_filters() -> None:
    store, gate = MemoryStore(), Gate()
    async with serving(store, flow("wait", Step("gate", gate)), flow("make", step("cut"))) as runner:
        made = [(await carry_out(store, runner, "make", thing(number))).run_id for number in range(3)]
        held = await accept(store, runner, "wait", thing(1))
        assert [view.run_id for view in runner.list()] == [held, *reversed(made)]
        assert [view.run_id for view in runner.list(limit=2)] == [held, made[2]]
        assert [view.run_id for view in runner.list(active=True)] == [held]
        assert [view.run_id for view in runner.list(active=False, flow="make")] == made[::-1]
        assert [view.run_id for view in runner.list(resource=thing(1))] == [held, made[1]]
        assert [view.run_id for view in runner.list(resource=thing(1), active=False)] == [made[1]]


async def test_list_reads_past_one_page() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("cut")), flow("mend", step("patch"))) as runner:
        first = await carry_out(store, runner, "mend", thing(0))
        for number in range(1, 250):
            await carry_out(store, runner, "make", thing(number))
        assert [view.run_id for view in runner.list(flow="mend")] == [first.run_id]
        assert len(runner.list(limit=1000)) == 250


async def test_only_the_newest_runs_of_a_resource_are_kept() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("cut")), keep_runs=3) as runner:
        views = [await carry_out(store, runner, "make") for _ in range(5)]
        assert [view.run_id for view in runner.list()] == [view.run_id for view in reversed(views[2:])]
        assert runner.history(views[0].run_id) == []
        assert len(runner.history(views[4].run_id)) == 1


async def test_forget_drops_ended_runs_and_keeps_the_active_one() -> None:
    store, gate = MemoryStore(), Gate()
    async with serving(store, flow("wait", Step("gate", gate)), flow("make", step("cut"))) as runner:
        ended, other = await carry_out(store, runner, "make"), await carry_out(store, runner, "make", thing(2))
        held = await accept(store, runner, "wait")
        await store.write(lambda tx: runner.forget(tx, THING))
        assert runner.get(ended.run_id) is None and runner.history(ended.run_id) == []
        assert [view.run_id for view in runner.list()] == [held, other.run_id]


async def test_prune_drops_what_ended_long_ago() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with serving(store, flow("make", step("cut")), clock=clock) as runner:
        old = await carry_out(store, runner, "make", thing(1))
        clock.advance(100)
        new = await carry_out(store, runner, "make", thing(2))
        assert await runner.prune("other", 50) == 0
        assert await runner.prune(THING.kind, 50) == 1
        assert [view.run_id for view in runner.list()] == [new.run_id]
        assert runner.history(old.run_id) == []


async def test_on_end_is_in_the_transaction_that_ends_the_run() -> None:
    def write_down(tx: Tx, ended: EndedRun[Job]) -> None:
        ended.deps.append(f"{ended.ending.value} {ended.error}")
        tx.put(WORDS, ended.run_id, ended.ending.value)

    store, notes = MemoryStore(), list[str]()
    good, bad = (
        flow("good", step("cut"), on_end=write_down),
        flow("bad", step("cut", Abort("blunt")), on_end=write_down),
    )
    async with serving(store, good, bad, notes=notes) as runner:
        views = [await carry_out(store, runner, name) for name in ("good", "bad")]
    assert [store.get(WORDS, view.run_id) for view in views] == ["done", "failed"]
    assert notes == ["cut", "done None", "cut", "undo cut", "failed blunt"]


async def test_an_operator_can_retry_a_failed_run_from_its_first_step() -> None:
    class Mood:
        good = False

    async def moody(context: Ctx) -> Outcome:
        return Done() if Mood.good else Abort("not today")

    store, notes = MemoryStore(), list[str]()
    async with serving(store, flow("make", step("cut"), Step("sew", moody)), notes=notes) as runner:
        failed = await carry_out(store, runner, "make")
        Mood.good = True
        await runner.retry(failed.run_id)
        done = await runner.wait(failed.run_id, DEADLINE_S)
    assert (failed.state, done.state, done.error) == (State.FAILED, State.DONE, None)
    assert notes == ["cut", "undo cut", "cut"]


async def test_a_done_run_has_nothing_to_retry_or_abort() -> None:
    store = MemoryStore()
    async with serving(store, flow("make", step("cut"))) as runner:
        done = await carry_out(store, runner, "make")
        with pytest.raises(WrongState, match="nothing to retry"):
            await runner.retry(done.run_id)
        with pytest.raises(WrongState, match="has ended"):
            await runner.abort(done.run_id)
        await runner.cancel(done.run_id, "too late is no error")
        assert runner.get(done.run_id) == done


async def test_a_retry_that_waits_can_be_had_now() -> None:
    class Mood:
        tries = 0

    async def second_time(context: Ctx) -> Outcome:
        Mood.tries += 1
        if Mood.tries == 1:
            raise RuntimeError("first time")
        return Done()

    slow = Step("sew", second_time, backoff=Backoff(attempts=3, first_s=3600, cap_s=3600))
    store = MemoryStore()
    async with serving(store, flow("make", slow)) as runner:
        run_id = await accept(store, runner, "make")
        view = await seen(runner, run_id, State.WAITING)
        assert view.waiting_for == "time" and view.wake_at is not None
        await runner.retry(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE


def test_a_queue_that_does_not_exist_is_refused() -> None:
    lost = Step("cut", noting("cut"), queue="lost")
    with pytest.raises(ValueError, match="lost"):
        Runner(MemoryStore(), [flow("make", lost)], [], SystemClock())


def test_two_flows_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Runner(MemoryStore(), [flow("make", step("cut")), flow("make", step("sew"))], [], SystemClock())


async def test_run_ids_go_up_when_the_wall_clock_goes_back() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with serving(store, flow("make", step("cut")), clock=clock) as runner:
        first = await carry_out(store, runner, "make")
        clock.advance(-1000)
        second = await carry_out(store, runner, "make")
    async with serving(store, flow("make", step("cut")), clock=ManualClock(start=1.0)) as later:
        third = await carry_out(store, later, "make")
    assert first.run_id < second.run_id < third.run_id


@pytest.mark.parametrize("outcome", [Done("late"), HandOff("next", Job()), Retry("again")])
async def test_a_step_that_ends_just_after_its_run_was_cancelled_changes_nothing(outcome: Outcome) -> None:
    """A run whose steps have no undo ends with the cancel, whatever its step is about to say."""
    runners: list[Runner[list[str]]] = []

    async def do(context: Ctx) -> Outcome:
        with anyio.CancelScope(shield=True):
            await runners[0].cancel(context.run_id, "while it ends")
        return outcome

    store, notes = MemoryStore(), list[str]()
    flows = flow("plain", Step("only", do, backoff=Backoff(first_s=0.001))), flow("next", step("heir"))
    async with serving(store, *flows, notes=notes) as runner:
        runners.append(runner)
        run = await runner.wait(await accept(store, runner, "plain"), DEADLINE_S)
        assert run.state is State.CANCELLED and runner.active(THING) is None
        assert await runner.wait(await accept(store, runner, "next"), DEADLINE_S)
    assert notes == ["heir"]


@pytest.mark.parametrize("back_s", [90.0, 86_400.0])
async def test_a_clock_that_was_set_back_makes_no_delay_longer(back_s: float) -> None:
    clock, store, later = ManualClock(), MemoryStore(), flow("later", step("rest"))
    run_id = await accept(store, Runner(store, [later], [], clock), "later", delay_s=30.0)
    clock.advance(-back_s)
    began = clock.now()
    async with serving(store, later, clock=clock) as runner:
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.DONE
    assert clock.now() - began <= 30.0


async def test_a_store_that_cannot_be_written_at_boot_delays_what_is_resumed_and_fails_nothing() -> None:
    store = MemoryStore()
    runner = Runner(store, [flow("make", step("cut"))], list[str](), LoopClock())
    run_id = await accept(store, runner, "make")
    full = store.crash(faults=StoreFaults(fail=frozenset({store.commits + 1, store.commits + 2})))
    async with serving(full, flow("make", step("cut"))) as later:
        assert (await later.wait(run_id, DEADLINE_S)).state is State.DONE
