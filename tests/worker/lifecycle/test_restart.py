import pytest

from hawker.errors import WrongState
from hawker.machine import State
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_restart_ends_the_instance_and_starts_another(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    before = worker.record(machine_id)
    await worker.restart(machine_id)
    after = await worker.reaches(machine_id, State.STARTED)
    assert before.running is not None and after.running is not None
    assert before.running.instance_id != after.running.instance_id
    assert after.version == before.version and after.holds == before.holds
    assert worker.events(machine_id)[-3:] == ["restart/restarting", "exit/stopped", "start/started"]
    check_at_rest(stall)


async def test_a_stopped_machine_is_started_by_a_restart(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    check_at_rest(stall)


async def test_restart_during_a_restart_is_refused(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.restart(machine_id)
    with pytest.raises(WrongState, match="unable to restart machine from current state: 'restarting'"):
        await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)


async def test_an_instance_that_cannot_be_ended_goes_on_running(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    before = worker.record(machine_id)
    stall.host.script("stop", *[FakeFault(error=OSError("stuck"))] * 5)
    await worker.restart(machine_id)
    after = await worker.reaches(machine_id, State.STARTED)
    assert after.running == before.running and after.holds == before.holds
    assert worker.events(machine_id)[-1] == "restart/failed"
    check_at_rest(stall)


async def test_stop_overtakes_a_restart(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(worker.record(machine_id).id)
    await worker.restart(machine_id)
    await worker.stop(machine_id, signal="SIGKILL")
    assert await worker.wait(machine_id, "stopped", timeout=2) is State.STOPPED
    await worker.at_rest()
    check_at_rest(stall)


async def test_a_machine_between_two_tries_is_restarted_at_once(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.end(worker.record(machine_id).id, 1)
    await worker.reaches(machine_id, State.STARTING)
    await worker.restart(machine_id)
    assert await worker.wait(machine_id, "started", timeout=1) is State.STARTED
    await stall.clock.sleep(60)
    assert len(stall.host.ever[worker.record(machine_id).id]) == 2
    check_at_rest(stall)
