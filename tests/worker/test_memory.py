from pathlib import Path

import pytest

from hawker.api.contract.machine_operation import GET_MEMORY, RECLAIM_MEMORY, ReclaimRequest
from hawker.errors import Conflict, LeaseHeld, NotServed, Unprocessable, WrongState
from hawker.machine import State
from hawker.runtime.driver import Features
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.kit import WorkerKit
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
GROWING = {"memory_mb": 256, "max_memory_mb": 1024}


async def shown(worker: SimWorker, machine_id: str) -> tuple[int, int]:
    answer = await worker.api.call(GET_MEMORY, params=params(machine_id))
    return answer.limit_mb, answer.available_mb


async def test_a_machine_has_what_its_config_says_until_it_is_changed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    assert await shown(worker, machine_id) == (256, 255)
    answer = await worker.set_memory(machine_id, 512)
    assert (answer.limit_mb, answer.available_mb) == (512, 511) == await shown(worker, machine_id)
    assert worker.record(machine_id).holds.memory_mib == 512
    await worker.at_rest()
    check_at_rest(stall)


async def test_a_lower_limit_keeps_the_room_that_the_next_start_needs(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    await worker.set_memory(machine_id, 512)
    await worker.set_memory(machine_id, 64)
    assert (await shown(worker, machine_id))[0] == 64
    assert worker.record(machine_id).holds.memory_mib == 256
    await worker.at_rest()
    check_at_rest(stall)


async def test_the_next_start_has_the_configs(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    await worker.set_memory(machine_id, 512)
    await worker.restart(machine_id)
    record = await worker.reaches(machine_id, State.STARTED)
    assert (await shown(worker, machine_id))[0] == 256 == record.holds.memory_mib
    check_at_rest(stall)


async def test_the_memory_is_the_same_after_a_daemon_was_killed(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(guest=GROWING)
        await worker.set_memory(machine_id, 512)
    stall.crash()
    async with stall.open() as worker:
        assert (await shown(worker, machine_id))[0] == 512
        check_at_rest(stall)


async def test_memory_the_host_has_not_is_refused(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    await worker.started(guest={"memory_mb": 512})
    with pytest.raises(Conflict, match="could not reserve resource for machine: insufficient memory"):
        await worker.set_memory(machine_id, 1024)
    assert (await shown(worker, machine_id))[0] == 256
    await worker.set_memory(machine_id, 512)
    await worker.at_rest()
    check_at_rest(stall)


@pytest.mark.parametrize("limit_mb", [-1, 0, 31, 1025, 10**12])
async def test_a_size_out_of_bounds_is_refused_with_the_bounds(worker: SimWorker, limit_mb: int) -> None:
    machine_id = await worker.started(guest=GROWING)
    with pytest.raises(Unprocessable, match="limit_mb must be between 32 and 1024"):
        await worker.set_memory(machine_id, limit_mb)


async def test_without_a_maximum_memory_does_not_grow(worker: SimWorker) -> None:
    machine_id = await worker.started(guest={"memory_mb": 256})
    with pytest.raises(Unprocessable, match="between 32 and 256"):
        await worker.set_memory(machine_id, 257)


async def test_less_than_is_in_use_is_refused_and_nothing_is_changed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    stall.host.used[worker.record(machine_id).id] = 200
    with pytest.raises(WrongState, match="cannot give back"):
        await worker.set_memory(machine_id, 128)
    assert await shown(worker, machine_id) == (256, 56)
    await worker.at_rest()
    check_at_rest(stall)


async def test_room_that_was_taken_in_vain_is_given_back(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    stall.host.script("limit_memory", FakeFault(error=WrongState("no")))
    with pytest.raises(WrongState):
        await worker.set_memory(machine_id, 512)
    assert worker.record(machine_id).holds.memory_mib == 256
    await worker.at_rest()
    check_at_rest(stall)


async def test_only_one_change_at_a_time(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=GROWING)
    stall.host.script("suspend", FakeFault(delay_s=5))
    await worker.suspend(machine_id)
    with pytest.raises(WrongState, match="'suspending'"):
        await worker.set_memory(machine_id, 512)


async def test_a_suspended_machine_is_shown_and_not_changed(worker: SimWorker) -> None:
    machine_id = await worker.started(guest=GROWING)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    assert (await shown(worker, machine_id))[0] == 256
    with pytest.raises(WrongState, match="unable to change the memory of machine from current state: 'suspended'"):
        await worker.set_memory(machine_id, 512)


async def test_a_machine_that_is_off_has_none(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    with pytest.raises(WrongState, match="unable to read the memory of machine from current state: 'stopped'"):
        await shown(worker, machine_id)


async def test_reclaimed_memory_is_told(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.cached[worker.record(machine_id).id] = 30
    told = []
    for amount in (20, 20, 20):
        answer = await worker.api.call(RECLAIM_MEMORY, params=params(machine_id), body=ReclaimRequest(amount_mb=amount))
        told.append(answer.actual_mb)
    assert told == [20, 10, 0]
    with pytest.raises(Unprocessable, match="amount_mb must not be negative"):
        await worker.api.call(RECLAIM_MEMORY, params=params(machine_id), body=ReclaimRequest(amount_mb=-1))


async def test_a_lease_guards_changes(worker: SimWorker) -> None:
    machine_id = await worker.started(guest=GROWING)
    lease = await worker.lease(machine_id, 60)
    with pytest.raises(LeaseHeld):
        await worker.set_memory(machine_id, 512)
    with pytest.raises(LeaseHeld):
        await worker.api.call(RECLAIM_MEMORY, params=params(machine_id), body=ReclaimRequest(amount_mb=1))
    assert (await worker.set_memory(machine_id, 512, lease.nonce)).limit_mb == 512


async def test_a_driver_without_limits_is_named(tmp_path: Path) -> None:
    plain = Features(rootfs=True, network=True, limits=False)
    stall = MemoryWorld(tmp_path, kit=WorkerKit(driver=lambda host, _: FakeDriver(host, plain)))
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        with pytest.raises(NotServed, match=r"driver \(fake\): its machines have no limits"):
            await worker.set_memory(machine_id, 128)
        with pytest.raises(NotServed):
            await shown(worker, machine_id)
