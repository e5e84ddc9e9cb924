"""A store set back to a backup, over a host that went on: what runs is taken up, and nothing is started by itself."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from hawker.errors import Unavailable
from hawker.fsm.contract import WhenBusy
from hawker.ids import InstanceId, MachineId
from hawker.machine import State
from hawker.proof import invariants
from hawker.proof.violation import Invariant
from hawker.record.machine import machine_resource
from hawker.record.node import COPY, CopyRecord
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import MemoryStore, StoreFaults
from hawker.worker.assembly import adoption_of
from hawker.worker.lifecycle.start import START, Launch
from tests.worker.invariants import check_store

pytestmark = pytest.mark.anyio
Deed = Callable[[SimWorker], Awaitable[object]]


async def backup(stall: MemoryWorld) -> MemoryStore:
    """Of a stall that is closed, with all that its store has; that goes on as it was."""
    await stall.store.write(lambda tx: None)
    copy, stall.store = stall.store.crash(), stall.store.crash()
    await copy.write(lambda tx: tx.put(COPY, "self", CopyRecord(taken_at=stall.clock.now(), version="0.1.0")))
    return copy


async def set_back(stall: MemoryWorld, before: Deed, after: Deed) -> None:
    """`before` is in the backup, `after` is not."""
    async with stall.open() as worker:
        await worker.app()
        await before(worker)
        await worker.at_rest()
    copy = await backup(stall)
    async with stall.open() as worker:
        await after(worker)
        await worker.at_rest()
    stall.store = copy


def check_at_rest(stall: MemoryWorld) -> None:
    """All but the codes of instances whose end is in neither the backup nor on the host."""
    with stall.store.snapshot() as reader:
        found = invariants.at_rest(reader, stall.seen())
    assert [each for each in found if each.invariant is not Invariant.EXIT_ONCE] == []


async def exits(worker: SimWorker, machine_id: str) -> list[tuple[int, str]]:
    """Codes and reasons, oldest first."""
    found = [event.request.exit_event for event in await worker.exits(machine_id) if event.request]
    return [(exit.exit_code, exit.reason) for exit in reversed(found) if exit is not None]


class Case:
    """One machine, and what happened to it before and after the backup."""

    machine_id = ""

    async def runs(self, worker: SimWorker) -> None:
        self.machine_id = await worker.started(restart={"policy": "on-failure"})

    async def is_off(self, worker: SimWorker) -> None:
        self.machine_id = await worker.stopped()

    async def nothing(self, worker: SimWorker) -> None:
        pass

    async def start(self, worker: SimWorker) -> None:
        await worker.start(self.machine_id)

    async def restart(self, worker: SimWorker) -> None:
        await worker.restart(self.machine_id)

    async def is_suspended(self, worker: SimWorker) -> None:
        await self.runs(worker)
        await worker.suspend(self.machine_id)
        await worker.reaches(self.machine_id, State.SUSPENDED)

    async def start_and_suspend(self, worker: SimWorker) -> None:
        await worker.start(self.machine_id)
        await worker.reaches(self.machine_id, State.STARTED)
        await worker.suspend(self.machine_id)
        await worker.reaches(self.machine_id, State.SUSPENDED)

    async def stop(self, worker: SimWorker) -> None:
        await worker.stop(self.machine_id)

    async def destroy(self, worker: SimWorker) -> None:
        await worker.destroy(self.machine_id, force=True)

    async def update(self, worker: SimWorker) -> None:
        await worker.update(self.machine_id, env={"NEW": "yes"})


@pytest.mark.parametrize("after", ["nothing", "restart", "update"])
async def test_a_running_machine_is_taken_up_as_it_is(stall: MemoryWorld, after: str) -> None:
    case = Case()
    await set_back(stall, case.runs, getattr(case, after))
    running = stall.host.running()
    launched = stall.host.launched.total()
    async with stall.open() as worker:
        await stall.clock.sleep(200)
        record = worker.record(case.machine_id)
        assert record.state is State.STARTED and record.running is not None
        assert stall.host.running() == running == {record.id: record.running.instance_id}
        assert stall.host.launched.total() == launched
        lost = await exits(worker, case.machine_id)
        assert lost == ([] if after == "nothing" else [(137, "it ended, or was replaced, after the backup was taken")])
        check_store(worker.store)
        stall.host.end(record.id, 0)
        await worker.reaches(case.machine_id, State.STOPPED)


@pytest.mark.parametrize("before", ["runs", "is_off"])
async def test_a_machine_suspended_since_is_taken_up_suspended(stall: MemoryWorld, before: str) -> None:
    case = Case()
    await set_back(stall, getattr(case, before), case.start_and_suspend)
    async with stall.open() as worker:
        record = worker.record(case.machine_id)
        assert record.state is State.SUSPENDED and stall.host.suspended() == {record.id}
        await stall.clock.sleep(200)
        assert await worker.reconciler.find() == []
        check_at_rest(stall)
        await worker.start(case.machine_id)
        await worker.reaches(case.machine_id, State.STARTED)


async def test_a_machine_resumed_since_is_taken_up_started(stall: MemoryWorld) -> None:
    case = Case()
    await set_back(stall, case.is_suspended, case.start)
    async with stall.open() as worker:
        assert worker.record(case.machine_id).state is State.STARTED
        await stall.clock.sleep(200)
        assert stall.host.suspended() == frozenset() and await worker.reconciler.find() == []
        check_at_rest(stall)


async def test_a_machine_that_was_off_and_runs_now_is_taken_up(stall: MemoryWorld) -> None:
    case = Case()
    await set_back(stall, case.is_off, case.start)
    running = stall.host.running()
    async with stall.open() as worker:
        record = worker.record(case.machine_id)
        assert record.state is State.STARTED and record.holds.memory_mib > 0
        await stall.clock.sleep(200)
        assert stall.host.running() == running and await worker.reconciler.find() == []
        assert worker.store.get(COPY, "self") is None
        check_at_rest(stall)


async def test_a_machine_stopped_since_has_its_end_recorded(stall: MemoryWorld) -> None:
    case = Case()
    await set_back(stall, case.runs, case.stop)
    async with stall.open() as worker:
        await stall.clock.sleep(200)
        ((code, reason),) = await exits(worker, case.machine_id)
        assert not reason, "its own end, as the host has it"
        assert code != 0
        await worker.reaches(case.machine_id, State.STARTED)


async def test_a_machine_that_came_and_went_since_has_its_end_recorded(stall: MemoryWorld) -> None:
    case = Case()

    async def start_and_end(worker: SimWorker) -> None:
        await worker.start(case.machine_id)
        await worker.reaches(case.machine_id, State.STARTED)
        stall.host.end(MachineId(case.machine_id), 0)
        await worker.reaches(case.machine_id, State.STOPPED)

    await set_back(stall, case.is_off, start_and_end)
    async with stall.open() as worker:
        await stall.clock.sleep(200)
        assert await exits(worker, case.machine_id) == [(0, "")]
        assert worker.record(case.machine_id).state is State.STOPPED
        check_at_rest(stall)


async def test_a_machine_destroyed_since_is_back_and_off(stall: MemoryWorld) -> None:
    case = Case()
    await set_back(stall, case.runs, case.destroy)
    async with stall.open() as worker:
        await stall.clock.sleep(200)
        assert worker.record(case.machine_id).state is State.STOPPED
        ((code, reason),) = await exits(worker, case.machine_id)
        assert code == 137 and "nothing of it was on the host" in reason
        assert stall.host.running() == {}
        check_at_rest(stall)
        await worker.start(case.machine_id)
        await worker.reaches(case.machine_id, State.STARTED)


async def test_a_machine_created_since_is_removed(stall: MemoryWorld) -> None:
    case, later = Case(), Case()
    await set_back(stall, case.runs, later.runs)
    assert len(stall.host.running()) == 2
    async with stall.open():
        await stall.clock.sleep(200)
        assert set(stall.host.running()) == {case.machine_id}
        check_at_rest(stall)


async def test_a_launch_that_was_to_come_gives_way_to_what_runs(stall: MemoryWorld) -> None:
    """Between two tries when the backup was taken, and started by its user since."""
    case = Case()

    async def wait_for_a_try(worker: SimWorker) -> None:
        await case.is_off(worker)
        table, machine_id = worker.parts.deps.table, MachineId(case.machine_id)
        launch = Launch(instance_id=InstanceId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))

        def accept(tx: object) -> None:
            table.change(tx, table.get(tx, machine_id), state=State.STARTING, awaited=launch.instance_id)  # type: ignore[arg-type]
            worker.parts.runner.accept(
                tx,  # type: ignore[arg-type]
                START,
                machine_resource(machine_id),
                launch,
                delay_s=500,
                when_busy=WhenBusy.QUEUE,
            )

        await worker.store.write(accept)

    await set_back(stall, wait_for_a_try, case.start)
    running = stall.host.running()
    async with stall.open() as worker:
        await stall.clock.sleep(1000)
        await worker.at_rest()
        assert stall.host.running() == running
        assert worker.record(case.machine_id).state is State.STARTED
        check_at_rest(stall)


async def test_a_stop_that_was_under_way_is_done(stall: MemoryWorld) -> None:
    case = Case()

    async def stopping(worker: SimWorker) -> None:
        await case.runs(worker)
        stall.host.stubborn.add(MachineId(case.machine_id))
        await worker.stop(case.machine_id, timeout=300)

    async with stall.open() as worker:
        await worker.app()
        await stopping(worker)
    stall.store = await backup(stall)
    async with stall.open() as worker:
        await worker.reaches(case.machine_id, State.STOPPED)
        assert stall.host.running() == {}
        check_at_rest(stall)


async def test_the_restoring_is_done_once_and_not_without_the_mark(stall: MemoryWorld) -> None:
    case = Case()
    await set_back(stall, case.runs, case.nothing)
    async with stall.open() as worker:
        assert worker.store.get(COPY, "self") is None
        before = worker.record(case.machine_id)
        stall.host.script("inspect", FakeFault(error=AssertionError("nobody looks")))
        await adoption_of(worker.parts).take_up_restored()
        assert worker.record(case.machine_id) == before


@pytest.mark.parametrize("commits", range(1, 6))
async def test_a_crash_in_the_middle_begins_again(stall: MemoryWorld, commits: int) -> None:
    first, second = Case(), Case()

    async def before(worker: SimWorker) -> None:
        await first.runs(worker)
        await second.is_off(worker)

    async def after(worker: SimWorker) -> None:
        await first.restart(worker)
        await second.start(worker)

    await set_back(stall, before, after)
    running = stall.host.running()
    stall.crash(faults=StoreFaults(freeze_after=commits))
    with pytest.raises(BaseException):  # noqa: B017 - the daemon's death
        async with stall.open():
            await stall.clock.sleep(100)
            raise KeyboardInterrupt
    stall.crash(keep=0)
    async with stall.open() as worker:
        await stall.clock.sleep(200)
        assert stall.host.running() == running
        assert {worker.record(each.machine_id).state for each in (first, second)} == {State.STARTED}
        check_at_rest(stall)


@pytest.mark.parametrize("commit", range(1, 6))
async def test_a_write_that_fails_for_a_moment_begins_again(stall: MemoryWorld, commit: int) -> None:
    first, second = Case(), Case()

    async def before(worker: SimWorker) -> None:
        await first.is_off(worker)
        await second.is_off(worker)

    async def after(worker: SimWorker) -> None:
        await first.start(worker)
        await second.start(worker)

    await set_back(stall, before, after)
    running = stall.host.running()
    stall.crash(faults=StoreFaults(fail=frozenset({commit})))
    for _ in range(2):
        with suppress(Unavailable):
            async with stall.open() as worker:
                assert {worker.record(each.machine_id).state for each in (first, second)} == {State.STARTED}
    assert stall.store.get(COPY, "self") is None and stall.host.running() == running


async def test_a_record_that_cannot_be_taken_up_keeps_no_other_from_it(stall: MemoryWorld) -> None:
    first, second = Case(), Case()

    async def before(worker: SimWorker) -> None:
        await first.is_off(worker)
        await second.is_off(worker)

    await set_back(stall, before, second.start)
    stall.host.script("inspect", FakeFault(error=AssertionError("nobody foresaw it")))
    async with stall.open() as worker:
        assert worker.record(second.machine_id).state is State.STARTED and worker.store.get(COPY, "self") is None
