"""The daemon crashes at every commit and every step's edge, in thousands of ways: what was acknowledged is kept, each
effect is there once or not at all, and nothing is left half done. The store loses what a power cut may lose.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.fsm import journal
from hawker.fsm.contract import Abort, Backoff, Done, Flow, HandOff, Outcome, Resource, Retry, Step, StepContext
from hawker.fsm.run import State
from hawker.fsm.run import StepStatus as Recorded
from hawker.fsm.runner import Runner
from hawker.fsm.transition import VAIN_RESUMES
from hawker.ids import RunId
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore, StoreFaults
from tests.fsm.serving import Job, thing
from tests.short_form import short_form

pytestmark = pytest.mark.anyio

LIFE_DEADLINE_S = 90.0


class Host:
    """The world outside the daemon: it outlives every crash. `edges` counts the passing of steps' edges."""

    def __init__(self, crash_at_edge: int | None = None) -> None:
        self.there: set[str] = set()
        self.made: Counter[str] = Counter()
        self.edges = 0
        self.crash_at_edge = crash_at_edge
        self.crashed = anyio.Event()

    async def edge(self) -> None:
        self.edges += 1
        if self.edges == self.crash_at_edge:
            self.crashed.set()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    def make(self, key: str) -> None:
        if key not in self.there:
            self.there.add(key)
            self.made[key] += 1


Ctx = StepContext[Host, Job]
Act = Callable[[Ctx], Awaitable[Outcome]]
QUICK = Backoff(attempts=3, first_s=1, cap_s=1)


def making(name: str, then: Act | None = None) -> Step:
    """A step that makes its effect, and takes it back."""

    async def do(context: Ctx) -> Outcome:
        await context.deps.edge()
        context.deps.make(f"{context.run_id}/{name}")
        await context.deps.edge()
        return await then(context) if then else Done(name)

    async def undo(context: Ctx) -> None:
        await context.deps.edge()
        context.deps.there.discard(f"{context.run_id}/{name}")
        await context.deps.edge()

    return Step(name, do, undo, backoff=QUICK)


async def refuse(context: Ctx) -> Outcome:
    return Retry("not yet") if context.attempt < 2 else Abort("never")


async def second_time(context: Ctx) -> Outcome:
    return Retry("once more") if context.attempt < 2 else Done()


async def use_image(context: Ctx) -> Outcome:
    return Done(await context.child("pull", Resource(kind="image", id="shared"), Job()))


async def hand_over(context: Ctx) -> Outcome:
    return HandOff("start", Job())


async def hold(context: Ctx) -> Outcome:
    await anyio.sleep_forever()
    raise AssertionError


def flow(name: str, *steps: Step) -> Flow[Job]:
    return Flow(name, Job, steps)


FLOWS = (
    flow("create", making("image", use_image), making("net"), making("launch", second_time)),
    flow("pull", making("fetch"), making("unpack")),
    flow("doomed", making("disk"), making("net"), making("launch", refuse)),
    flow("clone", making("copy"), making("pass_on", hand_over)),
    flow("start", making("net"), making("launch")),
    flow("held", making("disk"), making("wait", hold)),
)


class Client:
    """Orders runs one after the other and remembers what it was told; asks again after a crash. Cancels `held` ones."""

    def __init__(self, wanted: Sequence[tuple[str, int]]) -> None:
        self._wanted = list(wanted)
        self._to_cancel: RunId | None = None
        self.acknowledged: list[RunId] = []
        self.cancelled: list[RunId] = []

    async def _order(self, store: MemoryStore, runner: Runner[Host], name: str, resource: Resource) -> RunId:
        def apply(tx: Tx) -> RunId:
            return runner.accept(tx, name, resource, Job())

        return await store.write(apply)

    async def carry_on(self, store: MemoryStore, runner: Runner[Host]) -> None:
        while self._wanted or self._to_cancel:
            if self._to_cancel is not None:
                await runner.cancel(self._to_cancel, "enough")
                self.cancelled.append(self._to_cancel)
                self._to_cancel = None
                continue
            name, number = self._wanted[0]
            run_id = await self._order(store, runner, name, thing(number))
            self.acknowledged.append(run_id)
            self._to_cancel = run_id if name == "held" else None
            self._wanted.pop(0)
        for run_id in self.acknowledged:
            await runner.wait(run_id, LIFE_DEADLINE_S)


async def live(store: MemoryStore, host: Host, client: Client, clock: ManualClock) -> bool:
    """One life of the daemon; true when it did all that was wanted, false when it crashed."""
    finished = False
    host.crashed = anyio.Event()

    async def die(cause: anyio.Event) -> None:
        await cause.wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        runner: Runner[Host] = Runner(store, FLOWS, host, clock, keep_runs=10_000)
        group.start_soon(die, store.frozen)
        group.start_soon(die, host.crashed)
        await group.start(runner.serve)
        for view in runner.list(active=True, flow="held"):  # accepted in a commit that nobody heard of, perhaps
            await runner.cancel(view.run_id, "nobody waits for it")
        await client.carry_on(store, runner)
        for view in runner.list(active=True):
            await runner.wait(view.run_id, LIFE_DEADLINE_S)
        finished = True
        group.cancel_scope.cancel()
    return finished


def check(store: MemoryStore, host: Host, client: Client) -> None:
    runner: Runner[Host] = Runner(store, FLOWS, host, ManualClock())
    runs = {view.run_id: view for view in runner.list(limit=10_000)}
    expected: set[str] = set()
    for run_id in client.acknowledged:
        assert runs[run_id].ended, f"acknowledged and not ended: {runs[run_id]}"
    for run_id in client.cancelled:
        assert runs[run_id].state is State.CANCELLED
    for view in runs.values():
        done = [line.step for line in runner.history(view.run_id) if line.outcome is Recorded.DONE]
        if view.state is State.DONE:
            expected |= {f"{view.run_id}/{name}" for name in view.finished}
            assert done == list(view.finished)[: len(done)] and len(done) >= len(view.finished) - bool(view.handed_to)
        assert view.flow != "doomed" or view.state is State.FAILED
    assert host.there == expected, "each effect of a finished run is there, and of no other"
    assert all(host.made[key] == 1 for key in expected), "nothing that holds was made twice"
    assert (store.count(journal.OPEN), store.count(journal.LINES)) == (0, 0)


SCENARIO = [("create", 1), ("doomed", 1), ("held", 1), ("clone", 1), ("create", 2)]


async def count_of_a_quiet_life() -> tuple[int, int]:
    """How many commits and edges the scenario has when nothing crashes."""
    store, host, client = MemoryStore(), Host(), Client(SCENARIO)
    assert await live(store, host, client, ManualClock())
    check(store, host, client)
    return store.commits, host.edges


@pytest.mark.parametrize("power_cut", [False, True])
async def test_a_crash_after_any_commit_loses_nothing(power_cut: bool) -> None:
    commits, _ = await count_of_a_quiet_life()
    for number in range(1, commits + 1):
        clock, host, client = ManualClock(seed=number), Host(), Client(SCENARIO)
        store = MemoryStore(faults=StoreFaults(freeze_after=number))
        with anyio.fail_after(LIFE_DEADLINE_S):
            assert not await live(store, host, client, clock)
            survivor = store.crash(keep=0 if power_cut else store.pending)
            assert await live(survivor, host, client, clock)
        check(survivor, host, client)


async def test_a_crash_at_any_edge_of_a_step_loses_nothing() -> None:
    _, edges = await count_of_a_quiet_life()
    for number in range(1, edges + 1):
        clock, host, client = ManualClock(seed=number), Host(crash_at_edge=number), Client(SCENARIO)
        store = MemoryStore()
        with anyio.fail_after(LIFE_DEADLINE_S):
            if not await live(store, host, client, clock):
                store = store.crash(keep=store.pending)
                assert await live(store, host, client, clock)
        check(store, host, client)


FEW = short_form(range(10), lambda batch: batch < 2, "forty lives more a batch; two batches are the short form")


@pytest.mark.parametrize("batch", FEW)
async def test_many_crashes_in_many_lives_lose_nothing(batch: int) -> None:
    for seed in range(batch * 40, batch * 40 + 40):
        chance = random.Random(seed)
        names = ["create", "doomed", "clone", "start", "held"]
        client = Client([(chance.choice(names), chance.randrange(3)) for _ in range(8)])
        clock, host, store = ManualClock(seed=seed), Host(), MemoryStore()
        with anyio.fail_after(LIFE_DEADLINE_S):
            for _ in range(VAIN_RESUMES):  # more, without a step in between, and a run is stuck
                store = store.crash(chance.randint(0, store.pending), StoreFaults(freeze_after=chance.randint(1, 40)))
                host.crash_at_edge = host.edges + chance.randint(1, 80)
                if await live(store, host, client, clock):
                    break
            store, host.crash_at_edge = store.crash(chance.randint(0, store.pending)), None
            assert await live(store, host, client, clock), f"seed {seed}"
        check(store, host, client)
