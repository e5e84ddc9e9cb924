"""What a step is given: its input, earlier results, and children that it starts, joins and finds again."""

import anyio
import pytest

from hawker.errors import NoRoom, Unavailable, WrongState
from hawker.fsm.contract import Abort, Backoff, Done, HandOff, Outcome, Resource, Step
from hawker.fsm.run import State
from hawker.store.memory_store import MemoryStore
from tests.fsm.serving import (
    DEADLINE_S,
    FAST,
    Ctx,
    Held,
    Job,
    accept,
    carry_out,
    failing,
    flow,
    outcomes,
    run_once,
    seen,
    serving,
    step,
    thing,
)
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_a_step_reads_what_an_earlier_one_recorded() -> None:
    async def count(context: Ctx) -> Outcome:
        return Done({"sheep": 3})

    async def double(context: Ctx) -> Outcome:
        return Done(2 * context.result("count", dict[str, int])["sheep"])

    view, _ = await run_once(flow("make", Step("count", count), Step("double", double)))
    assert view.result == 6


async def test_a_step_that_has_not_finished_has_no_result() -> None:
    async def early(context: Ctx) -> Outcome:
        assert not context.finished("late")
        with pytest.raises(LookupError):
            context.result("late", int)
        return Done()

    view, _ = await run_once(flow("make", Step("early", early), step("late")))
    assert view.state is State.DONE


async def test_results_are_there_after_a_restart() -> None:
    async def double(context: Ctx) -> Outcome:
        if not context.deps:
            await anyio.sleep_forever()
        return Done(2 * context.result("count", int))

    store, make = MemoryStore(), flow("make", step("count", Done(21)), Step("double", double))
    count = flow("make", Step("count", failing(Done(21))), Step("double", double))
    async with serving(store, count) as first:
        run_id = await accept(store, first, "make")
        await eventually(lambda: outcomes(first, run_id) == ["count 1 done"])
    async with serving(store, make, notes=["go"]) as second:
        assert (await second.wait(run_id, DEADLINE_S)).result == 42


IMAGE = Resource(kind="image", id="sha256:0")


async def pull_image(context: Ctx) -> Outcome:
    return Done(await context.child("pull", IMAGE, Job()))


async def test_a_child_gives_its_last_steps_result() -> None:
    view, _ = await run_once(flow("make", Step("image", pull_image)), flow("pull", step("fetch", Done("here"))))
    assert view.result == "here"
    assert len(view.children) == 1


async def test_many_parents_share_one_child() -> None:
    notes: list[str] = []
    gate = anyio.Event()

    async def fetch(context: Ctx) -> Outcome:
        context.deps.append("fetch")
        await gate.wait()
        return Done("here")

    store = MemoryStore()
    async with serving(
        store, flow("make", Step("image", pull_image)), flow("pull", Step("fetch", fetch)), notes=notes
    ) as runner:
        runs = [await accept(store, runner, "make", thing(number)) for number in range(10)]
        await eventually(lambda: all(view.waiting_for.startswith("run ") for view in runner.list(flow="make")))
        gate.set()
        for run_id in runs:
            assert (await runner.wait(run_id, DEADLINE_S)).result == "here"
    assert notes == ["fetch"]


async def test_a_childs_error_is_raised_in_the_parent_as_what_it_was() -> None:
    full = NoRoom("no room", scope="host", shortfall={"memory_mb": 3})
    caught: list[NoRoom] = []

    async def tolerate(context: Ctx) -> Outcome:
        try:
            await context.child("pull", IMAGE, Job())
        except NoRoom as error:
            caught.append(error)
        return Done()

    await run_once(flow("make", Step("image", tolerate)), flow("pull", step("fetch", Abort(full))))
    assert [(str(error), error.scope, error.shortfall) for error in caught] == [("no room", "host", {"memory_mb": 3})]


async def test_another_attempt_starts_another_child() -> None:
    notes: list[str] = []
    fetch = Step("fetch", failing(Abort(Unavailable("registry is down"))))
    again = Step("image", pull_image, backoff=FAST)
    view, history = await run_once(flow("make", again), flow("pull", fetch), notes=notes)
    assert view.state is State.DONE
    assert history == ["image 1 retry", "image 2 done"]
    assert len(set(view.children)) == 2


async def test_a_restart_finds_the_child_again() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    make = flow("make", Step("image", pull_image))
    async with serving(store, make, flow("pull", Step("fetch", held))) as first:
        run_id = await accept(store, first, "make")
        await held.reached.wait()
    async with serving(store, make, flow("pull", step("fetch", Done("here"))), notes=notes) as second:
        view = await second.wait(run_id, DEADLINE_S)
        assert [run.run_id for run in second.list(flow="pull")] == list(view.children)
    assert (view.result, notes) == ("here", ["fetch"])


async def test_an_ended_child_is_not_run_again_when_its_parent_repeats_the_step() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()

    async def pull_then_hold(context: Ctx) -> Outcome:
        result = await context.child("pull", IMAGE, Job())
        return Done(result) if held.reached.is_set() else await held(context)

    flows = flow("make", Step("image", pull_then_hold)), flow("pull", step("fetch", Done("here")))
    async with serving(store, *flows, notes=notes) as first:
        run_id = await accept(store, first, "make")
        await held.reached.wait()
    async with serving(store, *flows, notes=notes) as second:
        assert (await second.wait(run_id, DEADLINE_S)).result == "here"
    assert notes == ["fetch"]


async def test_retry_of_a_failed_run_starts_a_new_child() -> None:
    store, fetch = MemoryStore(), Step("fetch", failing(Abort(WrongState("not in the registry"))))
    async with serving(store, flow("make", Step("image", pull_image)), flow("pull", fetch)) as runner:
        failed = await carry_out(store, runner, "make")
        await runner.retry(failed.run_id)
        done = await runner.wait(failed.run_id, DEADLINE_S)
        assert (failed.state, done.state) == (State.FAILED, State.DONE)
        assert len(runner.list(flow="pull")) == 2 and len(done.children) == 1


async def test_retry_of_a_stuck_undo_starts_a_new_child() -> None:
    async def push_image(context: Ctx) -> None:
        await context.child("push", IMAGE, Job())

    store, push = MemoryStore(), flow("push", Step("send", failing(Abort(WrongState("no registry")))))
    make = flow("make", Step("image", failing(Abort("never")), push_image, backoff=Backoff(attempts=1)))
    async with serving(store, make, push) as runner:
        run_id = await accept(store, runner, "make")
        await seen(runner, run_id, State.STUCK)
        await runner.retry(run_id)
        assert (await runner.wait(run_id, DEADLINE_S)).error == "never"
        assert [view.state for view in runner.list(flow="push")] == [State.DONE, State.FAILED]


async def test_child_of_before_the_host_was_restarted_is_made_again() -> None:
    store, held, notes = MemoryStore(), Held(), list[str]()
    pull = flow("pull", step("fetch", Done("here")))
    async with serving(store, flow("make", Step("image", pull_image), Step("b", held)), pull, epoch="1") as first:
        run_id = await accept(store, first, "make")
        await held.reached.wait()
    make = flow("make", Step("image", pull_image), step("b"))
    async with serving(store, make, pull, notes=notes, epoch="2") as second:
        assert (await second.wait(run_id, DEADLINE_S)).state is State.DONE
    assert notes == ["fetch", "b"]


async def test_a_cancelled_child_fails_its_parent() -> None:
    store, held = MemoryStore(), Held()
    async with serving(store, flow("make", Step("image", pull_image)), flow("pull", Step("fetch", held))) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        (child,) = runner.list(flow="pull")
        assert child.parent == run_id
        await runner.cancel(child.run_id, "enough")
        assert isinstance((await runner.wait(run_id, DEADLINE_S)).failure, WrongState)


async def test_cancelling_a_parent_leaves_the_child_to_others() -> None:
    store, held = MemoryStore(), Held()
    async with serving(store, flow("make", Step("image", pull_image)), flow("pull", Step("fetch", held))) as runner:
        run_id = await accept(store, runner, "make")
        await held.reached.wait()
        await runner.cancel(run_id, "enough")
        assert (await runner.wait(run_id, DEADLINE_S)).state is State.CANCELLED
        assert [view.flow for view in runner.list(active=True)] == ["pull"]


async def test_a_child_on_its_parents_own_resource_is_refused() -> None:
    async def selfish(context: Ctx) -> Outcome:
        return Done(await context.child("pull", context.resource, Job()))

    view, _ = await run_once(flow("make", Step("image", selfish, backoff=FAST)), flow("pull", step("fetch")))
    assert view.state is State.FAILED and "holds thing a/1 itself" in (view.error or "")


async def unpack(context: Ctx) -> Outcome:
    return HandOff("unpack", Job())


async def test_a_parent_waits_for_the_heir_of_its_child() -> None:
    flows = flow("pull", Step("over", unpack)), flow("unpack", step("spread", Done("all")))
    view, _ = await run_once(flow("make", Step("image", pull_image)), *flows)
    assert view.result == "all"


async def test_a_step_reaches_the_points_that_its_table_declares() -> None:
    async def cut(context: Ctx) -> Outcome:
        context.reach("half")
        with pytest.raises(AssertionError, match="declares no point whole"):
            context.reach("whole")
        with pytest.raises(AssertionError, match="declares no point back"):
            context.reach("back")
        return Abort("never")

    async def sew(context: Ctx) -> None:
        context.reach("back")
        with pytest.raises(AssertionError, match=r"declares no point undo\.half"):
            context.reach("half")

    view, _ = await run_once(flow("make", Step("cut", cut, undo=sew, points=("half", "undo.back"))))
    assert (view.state, view.error) == (State.FAILED, "never")
