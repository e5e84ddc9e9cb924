import anyio
import pytest

from hawker.errors import HawkerError
from hawker.machine import State
from hawker.node import Resources
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
GROWING = {"memory_mb": 256, "max_memory_mb": 512}


async def test_the_record_has_the_limit_of_that_instance_only(worker: SimWorker) -> None:
    machine_id = await worker.started(guest=GROWING)
    await worker.set_memory(machine_id, 512)
    record = worker.record(machine_id)
    assert record.running is not None and record.running.memory_mib == 512
    await worker.restart(machine_id)
    record = await worker.reaches(machine_id, State.STARTED)
    assert record.running is not None and record.running.memory_mib is None


async def test_a_host_that_fails_for_a_moment_is_asked_again(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    stall.host.script("limit_memory", FakeFault(error=OSError("busy")), FakeFault(error=OSError("busy"), after=True))
    assert (await worker.set_memory(machine_id, 512)).limit_mb == 512
    await worker.at_rest()
    check_at_rest(stall)


async def test_an_instance_that_ends_meanwhile_has_its_room_given_back(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING, restart={"policy": "no"})
    stall.host.script("limit_memory", FakeFault(delay_s=5))

    async def ask() -> None:
        with pytest.raises(HawkerError):
            await worker.set_memory(machine_id, 512)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await stall.clock.sleep(1)
        stall.host.end(worker.record(machine_id).id, 0)
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.holds == Resources()
    check_at_rest(stall)


async def test_a_stop_comes_after_it(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    stall.host.script("limit_memory", FakeFault(delay_s=5))

    async def ask() -> None:
        assert (await worker.set_memory(machine_id, 512)).limit_mb == 512

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await stall.clock.sleep(1)
        await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    check_at_rest(stall)
