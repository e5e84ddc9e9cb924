"""The end of an instance, told to the record by whoever comes first. What follows is tested with the supervisor."""

import pytest

from hawker.ids import InstanceId, MachineId
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.assembly import exit_handler_of
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def begun(worker: SimWorker) -> tuple[MachineId, InstanceId]:
    machine_id = MachineId(await worker.started(restart={"policy": "no"}))
    running = worker.record(machine_id).running
    assert running is not None
    return machine_id, running.instance_id


async def test_an_instance_is_over_once_the_host_says_so(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance_id = await begun(worker)
    endings = exit_handler_of(worker.parts)
    assert not await endings.is_over(machine_id, instance_id)
    assert await endings.is_over(machine_id, InstanceId("I0")), "another one of the machine"
    stall.host.end(machine_id, 3)
    assert await endings.is_over(machine_id, instance_id)


async def test_the_supervisor_and_another_record_an_end_once(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance_id = await begun(worker)
    stall.host.end(machine_id, 3)
    endings = exit_handler_of(worker.parts)
    for _ in range(2):
        await endings.settle(machine_id, instance_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert len(await worker.exits(machine_id)) == 1
    check_at_rest(stall)


async def test_the_end_of_an_older_instance_changes_nothing(worker: SimWorker) -> None:
    machine_id, _ = await begun(worker)
    before = worker.record(machine_id)
    await exit_handler_of(worker.parts).settle(machine_id, InstanceId("I0"))
    assert worker.record(machine_id) == before


async def test_the_end_of_a_machine_that_is_gone_is_nobodys(worker: SimWorker) -> None:
    await exit_handler_of(worker.parts).settle(MachineId("00000000000bad"), InstanceId("I0"))
    assert worker.machines() == []
