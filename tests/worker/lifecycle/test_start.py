import pytest

from hawker.errors import Conflict, WrongState
from hawker.fsm.run import State as RunState
from hawker.machine import State
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import StoreFaults
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_start_tells_the_state_before_and_makes_a_new_instance(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    first = worker.record(machine_id).running
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert await worker.start(machine_id) is State.STOPPED
    second = (await worker.reaches(machine_id, State.STARTED)).running
    assert first is not None and second is not None and first.instance_id != second.instance_id
    check_at_rest(stall)


async def test_starting_what_runs_changes_nothing(worker: SimWorker) -> None:
    machine_id = await worker.started()
    before = worker.record(machine_id)
    assert await worker.start(machine_id) is State.STARTED
    assert worker.record(machine_id) == before


async def test_a_machine_that_is_being_stopped_refuses_to_start(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(worker.record(machine_id).id)
    await worker.stop(machine_id)
    with pytest.raises(WrongState, match="machine still active, refusing to start"):
        await worker.start(machine_id)


async def test_a_start_that_fails_leaves_the_machine_failed_without_room(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    stall.host.script("start", *[FakeFault(error=OSError("no"), after=True)] * 3)
    await worker.start(machine_id)
    record = await worker.reaches(machine_id, State.FAILED)
    assert worker.events(record.id)[-1] == "start/failed"
    check_at_rest(stall)


async def test_a_failed_machine_can_be_started_stopped_and_destroyed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    stall.host.script("start", *[FakeFault(error=OSError("no"))] * 3)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.FAILED)
    await worker.stop(machine_id)
    assert worker.record(machine_id).state is State.FAILED, "it is off already"
    assert await worker.start(machine_id) is State.FAILED
    await worker.reaches(machine_id, State.STARTED)
    check_at_rest(stall)


async def test_retrying_the_run_of_a_failed_start_does_not_launch_what_nobody_awaits(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.stopped()
    stall.host.script("start", *[FakeFault(error=OSError("no"))] * 3)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.FAILED)
    run = worker.parts.runner.list(flow="start", limit=1)[0]
    assert run.state is RunState.FAILED
    await worker.parts.runner.retry(run.run_id)
    await worker.at_rest()
    assert worker.record(machine_id).state is State.FAILED and stall.host.running() == {}
    check_at_rest(stall)


async def test_start_is_refused_when_the_host_is_full(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped(guest={"memory_mb": 512, "cpus": 2, "cpu_kind": "shared"})
    await worker.started(guest={"memory_mb": 768, "cpus": 3, "cpu_kind": "shared"})
    with pytest.raises(Conflict, match="could not reserve resource for machine: insufficient memory"):
        await worker.start(machine_id)
    assert worker.record(machine_id).state is State.STOPPED
    check_at_rest(stall)


async def test_a_command_that_does_not_exist_is_tried_again_and_then_rests(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine = await worker.create(init={"exec": ["/nope"]}, restart={"policy": "on-failure", "max_retries": 2})
    record = await worker.reaches(machine.id, State.STOPPED)
    exits = await worker.exits(machine.id)
    assert len(exits) == 3 and record.restarts == 2
    newest = exits[0].request
    assert newest is not None and newest.exit_event is not None
    assert newest.exit_event.exit_code == 127 and "no such file" in newest.exit_event.reason
    assert "start/started" not in worker.events(machine.id)
    check_at_rest(stall)


async def test_an_instance_begun_before_a_crash_is_ended_by_a_stop_that_comes_first(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.stopped()
    stall.crash_points.burns_in = "start.launch after"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.start(machine_id)
            await worker.at_rest()
    assert len(stall.host.running()) == 1
    resumed, stopped = 1, 5  # between them the steps before the launch: their records were late, and are lost
    stall.crash(faults=StoreFaults(freeze_after=stopped))
    stall.host.script("prepare", FakeFault(delay_s=5))
    with pytest.raises(Death):
        async with stall.open() as worker:
            assert worker.parts.runner.list(flow="start")[0].resumes == resumed
            await worker.stop(machine_id)
    stall.crash()
    async with stall.open() as worker:
        await worker.reaches(machine_id, State.STOPPED)
        assert stall.host.running() == {}
        check_at_rest(stall)


async def test_a_start_left_over_from_a_backoff_does_nothing_once_its_machine_is_gone(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        stall.host.end(worker.record(machine_id).id, 1)
        await worker.reaches(machine_id, State.STARTING)
    stall.crash(faults=StoreFaults(freeze_after=2))
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.destroy(machine_id, force=True)
    stall.crash()
    async with stall.open() as worker:
        await worker.reaches(machine_id, State.DESTROYED)
        await stall.clock.sleep(60)
        assert [run.state for run in worker.parts.runner.list(flow="start")] == [RunState.DONE]
        check_at_rest(stall)
