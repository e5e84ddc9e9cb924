import pytest

from hawker.errors import NotFound, WrongState
from hawker.machine import State
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.stop import PATIENT
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_a_running_machine_is_destroyed_only_by_force(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    with pytest.raises(WrongState, match="unable to destroy machine, not currently stopped"):
        await worker.destroy(machine_id)
    await worker.destroy(machine_id, force=True)
    await worker.reaches(machine_id, State.DESTROYED)
    assert worker.events(machine_id)[-3:] == ["destroy/destroying", "exit/stopped", "destroy/destroyed"]
    assert stall.host.machines() == [] and not stall.rootfs.directories and not stall.networks.plugged
    check_at_rest(stall)


async def test_a_stopped_machine_is_destroyed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    with pytest.raises(NotFound, match="machine not found"):
        await worker.destroy(machine_id)
    check_at_rest(stall)


async def test_destroying_twice_is_one_destroy(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.destroy(machine_id, force=True)
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    assert len(worker.parts.runner.list(flow="destroy")) == 1


async def test_destroy_overtakes_a_patient_stop(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(worker.record(machine_id).id)
    await worker.stop(machine_id, timeout="5m")
    await worker.destroy(machine_id, force=True)
    assert await worker.wait(machine_id, "destroyed", timeout=2) is State.DESTROYED
    await worker.at_rest()
    check_at_rest(stall)


async def test_a_machine_between_two_tries_can_be_destroyed_and_stays_so(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.end(worker.record(machine_id).id, 1)
    await worker.reaches(machine_id, State.STARTING)
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    await stall.clock.sleep(60)
    assert stall.host.machines() == []
    check_at_rest(stall)


async def test_a_destroy_outlasts_a_host_that_refuses_for_a_while(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    stall.host.script("destroy", *[FakeFault(error=OSError("no space left on device"))] * 20)
    await worker.destroy(machine_id)
    await worker.at_rest()
    assert worker.record(machine_id).state is State.DESTROYED and len(worker.parts.runner.list(flow="destroy")) == 1
    check_at_rest(stall)


async def test_a_destroy_that_cannot_be_done_for_long_is_begun_anew_by_the_reconciler(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.stopped()
    stall.host.script("destroy", *[FakeFault(error=OSError("busy"))] * PATIENT.attempts)
    await worker.destroy(machine_id)
    await worker.at_rest(1.0)
    assert worker.record(machine_id).state is State.DESTROYING
    await worker.reaches(machine_id, State.DESTROYED)
    check_at_rest(stall)
