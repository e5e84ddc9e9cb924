import pytest

from hawker.errors import NotFound, WrongState
from hawker.fsm.run import State as RunState
from hawker.machine import State
from hawker.node import Resources
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_a_created_machine_is_started(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create()
    assert machine.state is State.CREATED
    record = await worker.reaches(machine.id, State.STARTED)
    assert worker.events(machine.id) == ["launch/created", "start/started"]
    assert record.running is not None and stall.host.running() == {record.id: record.running.instance_id}
    assert list(stall.rootfs.mounted) == list(stall.networks.plugged) == [record.id]
    check_at_rest(stall)


async def test_skip_launch_prepares_the_machine_and_leaves_it_off(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create(order={"skip_launch": True})
    with pytest.raises(WrongState, match="unable to start machine from current state: 'created'"):
        await worker.start(machine.id)
    record = await worker.reaches(machine.id, State.STOPPED)
    assert worker.events(machine.id) == ["launch/created", "stop/stopped"]
    assert record.holds == Resources() and stall.host.machines() == []
    check_at_rest(stall)
    await worker.start(machine.id)
    await worker.reaches(machine.id, State.STARTED)


async def test_a_wait_from_the_create_hears_of_the_rest(worker: SimWorker) -> None:
    machine = await worker.create(order={"skip_launch": True})
    event = machine.events[0].id
    assert await worker.wait(machine.id, "stopped", from_event_id=event) is State.STOPPED


async def test_machines_of_one_image_pull_it_once(worker: SimWorker) -> None:
    machines = [await worker.create() for _ in range(3)]
    for machine in machines:
        await worker.reaches(machine.id, State.STARTED)
    assert len(worker.parts.runner.list(flow="pull")) == 1


async def test_a_create_that_fails_leaves_a_history_and_nothing_else(worker: SimWorker, stall: MemoryWorld) -> None:
    broken = OSError("no space left on device")
    stall.host.script("start", *[FakeFault(error=broken, after=True)] * 3)
    machine = await worker.create()
    await worker.at_rest()
    assert worker.record(machine.id).state is State.DESTROYED
    assert worker.events(machine.id) == ["launch/created", "launch/launch_failed"]
    event = (await worker.get(machine.id)).events[0]
    assert event.request is None and "no space left" in event.error
    assert stall.host.machines() == [] and not stall.rootfs.directories and not stall.networks.plugged
    check_at_rest(stall)


async def test_a_caller_waiting_for_a_machine_that_cannot_be_made_is_told_at_once(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    stall.host.script("prepare", *[FakeFault(error=OSError("no"))] * 3)
    machine = await worker.create()
    with pytest.raises(NotFound, match="machine not found"):
        await worker.wait(machine.id, "started")


async def test_a_step_that_fails_for_a_moment_is_tried_again(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.host.script("start", FakeFault(error=OSError("busy")))
    await worker.started()
    check_at_rest(stall)


async def test_stop_during_create_waits_for_create_and_ends_stopped(worker: SimWorker, stall: MemoryWorld) -> None:
    pull = stall.hold()
    machine = await worker.create()
    await worker.stop(machine.id)
    assert worker.record(machine.id).state is State.STOPPING
    stop, create = worker.under_way(machine.id)
    assert (stop.flow, stop.state, create.flow) == ("stop", RunState.QUEUED, "create")
    pull.set()
    await worker.reaches(machine.id, State.STOPPED)
    check_at_rest(stall)


async def test_a_machine_stopped_while_it_is_made_is_not_launched(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create()
    await worker.stop(machine.id)
    await worker.reaches(machine.id, State.STOPPED)
    assert worker.events(machine.id) == ["launch/created", "stop/stopping", "stop/stopped"]
    check_at_rest(stall)
    await worker.start(machine.id)
    await worker.reaches(machine.id, State.STARTED)
    check_at_rest(stall)


async def test_destroying_a_machine_whose_image_never_comes_takes_no_time(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    stall.hold()
    machine = await worker.create()
    with pytest.raises(WrongState, match="unable to destroy machine, not currently stopped"):
        await worker.destroy(machine.id)
    before = stall.clock.now()
    await worker.destroy(machine.id, force=True)
    assert await worker.wait(machine.id, "destroyed") is State.DESTROYED
    assert stall.clock.now() - before < 1
    assert [run.flow for run in worker.parts.runner.list(active=True)] == ["pull"], "others may have joined it"


async def test_taking_back_outlasts_a_host_that_fails_more_often_than_a_pull_is_tried(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    """Found by the simulator: two failures in the undo left a machine that could not even be destroyed."""
    stall.host.script("start", *[FakeFault(error=OSError("no"), after=True)] * 3)
    stall.networks.troubles += [ScriptedFailure("delete", False)] * 4
    machine = await worker.create()
    await worker.at_rest()
    assert worker.record(machine.id).state is State.DESTROYED
    check_at_rest(stall)
