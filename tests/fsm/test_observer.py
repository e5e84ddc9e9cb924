"""What an observer of the engine hears, and in which order."""

import logging

import anyio
import pytest

from hawker.fsm.contract import Done, HandOff, Outcome, Resource, Retry, Step
from hawker.fsm.observer import RunLog, Silent
from hawker.fsm.run import Run, StepRecord
from hawker.store.memory_store import MemoryStore, StoreFaults
from tests.fsm.serving import Ctx, Held, Job, accept, carry_out, failing, flow, serving, step
from tests.fsm.test_transition import run_at

pytestmark = pytest.mark.anyio


class Ears(Silent):
    """Writes down what it is told, in short."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def accepted(self, run: Run) -> None:
        self.heard.append(f"accepted {run.flow}")

    def resumed(self, run: Run) -> None:
        self.heard.append(f"resumed {run.flow} at {run.step}")

    def attempted(self, run: Run, record: StepRecord) -> None:
        self.heard.append(f"{run.flow}.{record.step} {record.attempt} {record.outcome.value}")

    def ended(self, run: Run) -> None:
        self.heard.append(f"ended {run.flow} {run.state.value}")


async def test_an_observer_hears_of_a_run_its_attempts_and_its_end_in_order() -> None:
    ears = Ears()
    make = flow("make", step("copy"), Step("try", failing(Retry("not yet", 0.0))))
    store = MemoryStore()
    async with serving(store, make, observer=ears) as runner:
        await carry_out(store, runner, "make")
    assert ears.heard == [
        "accepted make",
        "make.copy 1 done",
        "make.try 1 retry",
        "make.try 2 done",
        "ended make done",
    ]


async def test_an_observer_hears_of_undos_and_of_a_failed_end() -> None:
    ears = Ears()
    make = flow("make", step("copy"), Step("fail", failing(*[ValueError("no")] * 9)))
    store = MemoryStore()
    async with serving(store, make, observer=ears) as runner:
        await carry_out(store, runner, "make")
    assert ears.heard[-2:] == ["make.copy 1 undone", "ended make failed"]


async def test_an_observer_hears_of_a_hand_off_before_its_predecessor_ends() -> None:
    ears = Ears()
    store = MemoryStore()
    first, second = flow("first", step("pass", HandOff("second", Job()))), flow("second", step("copy"))
    async with serving(store, first, second, observer=ears) as runner:
        await carry_out(store, runner, "first")
        await carry_out(store, runner, "second", Resource(kind="thing", id="other"))
    assert ears.heard[:4] == ["accepted first", "first.pass 1 handed_off", "accepted second", "ended first done"]


async def test_a_new_daemon_hears_of_what_it_takes_up_again_parents_first() -> None:
    held = Held()

    async def parent(context: Ctx) -> Outcome:
        return Done(await context.child("child", Resource(kind="thing", id="child"), Job()))

    store, ears = MemoryStore(), Ears()
    flows = flow("parent", Step("ask", parent)), flow("child", Step("hold", held))
    async with serving(store, *flows) as runner:
        await accept(store, runner, "parent")
        await held.reached.wait()
    held.reached = anyio.Event()
    async with serving(store, *flows, observer=ears):
        await held.reached.wait()
        assert ears.heard == ["resumed parent at ask", "resumed child at hold"]


async def test_an_attempt_that_the_store_could_not_take_at_first_is_told_once() -> None:
    ears, store = Ears(), MemoryStore(faults=StoreFaults(fail={3}))
    async with serving(store, flow("make", step("copy")), observer=ears) as runner:
        await carry_out(store, runner, "make")
    assert ears.heard == ["accepted make", "make.copy 1 done", "ended make done"]


async def test_rolled_back_change_is_not_told_to_observers() -> None:
    ears, store = Ears(), MemoryStore()
    async with serving(store, flow("make", step("copy")), observer=ears) as runner:

        def accept_and_fail(tx: object) -> None:
            runner.accept(tx, "make", Resource(kind="thing", id="a"), Job())  # type: ignore[arg-type]
            raise ValueError("changed my mind")

        with pytest.raises(ValueError, match="changed my mind"):
            await store.write(accept_and_fail)
    assert ears.heard == []


def test_every_line_carries_the_ids(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hawker.fsm"):
        RunLog(logging.getLogger("hawker.fsm")).say(run_at("b"), logging.INFO, "run ended", state="done", step="c")
    (line,) = caplog.records
    fields = ("run", "flow", "step", "resource_kind", "resource_id", "state")
    assert [getattr(line, name) for name in fields] == ["R", "make", "c", "thing", "a/1", "done"]
    assert line.getMessage() == "run ended"


def test_an_error_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hawker.fsm"):
        RunLog(logging.getLogger("hawker.fsm")).say(run_at("b"), logging.WARNING, "step raised", KeyError("x"))
    assert caplog.records[0].exc_info is not None


def test_a_level_that_is_off_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hawker.fsm"):
        RunLog(logging.getLogger("hawker.fsm")).say(run_at("b"), logging.DEBUG, "step recorded")
    assert caplog.records == []
