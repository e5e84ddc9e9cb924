"""A runner at work, and what the engine's tests give it to do."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from hawker.clock import Clock
from hawker.fsm.contract import Backoff, Done, Flow, Outcome, Resource, Step, StepContext, WhenBusy
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.fsm.view import RunView
from hawker.ids import RunId
from hawker.sim.harness.loop import LoopClock
from hawker.store.contract import Store
from hawker.store.memory_store import MemoryStore
from tests.waiting import eventually

DEADLINE_S = 60.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The input of every flow here."""

    size: int = 0


Ctx = StepContext[list[str], Job]
Do = Callable[[Ctx], Awaitable[Outcome]]
FAST = Backoff(attempts=3, first_s=0.001, cap_s=0.002)
THING = Resource(kind="thing", id="a/1")


def thing(number: int) -> Resource:
    return Resource(kind="thing", id=str(number))


def noting(word: str, outcome: Outcome | None = None) -> Do:
    """A step that writes `word` into the shared list."""

    async def do(context: Ctx) -> Outcome:
        context.deps.append(word)
        return outcome or Done(word)

    return do


def undoing(word: str) -> Callable[[Ctx], Awaitable[None]]:
    async def undo(context: Ctx) -> None:
        context.deps.append(f"undo {word}")

    return undo


def step(name: str, outcome: Outcome | None = None) -> Step:
    """A step, with an undo, that notes its name."""
    return Step(name, noting(name, outcome), undoing(name), backoff=FAST)


def flow(name: str, *steps: Step, **options: Any) -> Flow[Job]:
    return Flow(name, Job, steps, **options)


@asynccontextmanager
async def serving(
    store: Store, *flows: Flow[Any], notes: list[str] | None = None, clock: Clock | None = None, **options: Any
) -> AsyncIterator[Runner[list[str]]]:
    """Leaving it is what SIGTERM is to a daemon."""
    deps: list[str] = [] if notes is None else notes
    runner = Runner(store, flows, deps, clock or LoopClock(), **options)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            await group.start(runner.serve)
            yield runner
            group.cancel_scope.cancel()


async def accept(store: Store, runner: Runner[Any], name: str, resource: Resource = THING, **options: Any) -> RunId:
    return await store.write(lambda tx: runner.accept(tx, name, resource, Job(), **options))


async def carry_out(store: Store, runner: Runner[Any], name: str, resource: Resource = THING) -> RunView:
    return await runner.wait(await accept(store, runner, name, resource, when_busy=WhenBusy.QUEUE), DEADLINE_S)


async def seen(runner: Runner[Any], run_id: RunId, *states: State) -> RunView:
    """The run once it is in one of the states."""

    def view() -> list[RunView]:
        found = runner.get(run_id)
        return [found] if found is not None and found.state in states else []

    return (await eventually(view))[0]


def outcomes(runner: Runner[Any], run_id: RunId) -> Sequence[str]:
    """The history in short: `["copy 1 retry", "copy 2 done"]`."""
    return [f"{line.step} {line.attempt} {line.outcome.value}" for line in runner.history(run_id)]


def failing(*errors: Exception | Outcome) -> Callable[[Ctx], Awaitable[Outcome]]:
    """A step that fails so many times, then holds."""
    left = list(errors)

    async def do(context: Ctx) -> Outcome:
        if not left:
            return Done()
        error = left.pop(0)
        if isinstance(error, Exception):
            raise error
        return error

    return do


class Held:
    """A step that stays until it is cancelled."""

    def __init__(self) -> None:
        self.reached = anyio.Event()

    async def __call__(self, context: Ctx) -> Outcome:
        self.reached.set()
        await anyio.sleep_forever()
        raise AssertionError


async def run_once(*flows: Flow[Job], name: str = "make", notes: list[str] | None = None) -> tuple[RunView, list[str]]:
    """Carry out one run; the view and the history in short."""
    store = MemoryStore()
    async with serving(store, *flows, notes=notes, queues={"narrow": 1}) as runner:
        view = await carry_out(store, runner, name)
        return view, list(outcomes(runner, view.run_id))
