from pathlib import Path

import pytest

from hawker.machine import State
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.reconcile import Kind
from tests.worker.invariants import check_at_rest
from tests.worker.lifecycle.test_suspend import suspended

pytestmark = pytest.mark.anyio


async def test_a_start_lets_the_same_instance_go_on(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    before, launched = worker.record(machine_id), stall.host.launched.total()
    assert await worker.start(machine_id) is State.SUSPENDED, "the answer says what it was"
    record = await worker.reaches(machine_id, State.STARTED)
    assert (record.running, record.holds, record.version) == (before.running, before.holds, before.version)
    assert stall.host.launched.total() == launched and stall.host.suspended() == frozenset()
    assert worker.events(machine_id)[-2:] == ["start/starting", "start/started"]
    assert (await worker.get(machine_id)).events[0].resumed
    check_at_rest(stall)


async def test_a_resumed_machine_takes_no_room_anew(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker, guest={"memory_mb": 512})
    await worker.started(guest={"memory_mb": 512})
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    check_at_rest(stall)


async def test_starting_twice_resumes_once(worker: SimWorker) -> None:
    machine_id = await suspended(worker)
    await worker.start(machine_id)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert worker.events(machine_id).count("start/started") == 2


async def test_a_machine_can_be_suspended_again_and_again(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    for _ in range(3):
        await worker.start(machine_id)
        await worker.reaches(machine_id, State.STARTED)
        await worker.suspend(machine_id)
        await worker.reaches(machine_id, State.SUSPENDED)
    check_at_rest(stall)


async def test_a_stop_overtakes_it(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    stall.host.script("resume", FakeFault(delay_s=20))
    await worker.start(machine_id)
    await stall.clock.sleep(1)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    check_at_rest(stall)


async def test_a_host_that_refuses_for_a_while_delays_it(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    stall.host.script("resume", *[FakeFault(error=OSError("busy"))] * 10)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    check_at_rest(stall)


async def test_one_whose_instance_is_gone_is_left_to_its_policy(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker, restart={"policy": "always"})
    record = worker.record(machine_id)
    stall.host.script("resume", FakeFault(delay_s=1))
    await worker.start(machine_id)
    stall.host.remove(record.id)
    stall.host.felled.clear()  # it was not the daemon that ended it
    await stall.clock.sleep(120)
    after = await worker.reaches(machine_id, State.STARTED)
    assert after.running != record.running


@pytest.fixture
def guests(tmp_path: Path) -> MemoryWorld:
    """Machines have kernels of their own."""
    return MemoryWorld(tmp_path, guests=True)


async def test_a_guest_goes_on_after_a_reboot_with_a_network_that_is_made_again(guests: MemoryWorld) -> None:
    async with guests.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        assert await worker.suspend(machine_id) == "snapshot"
        before = await worker.reaches(machine_id, State.SUSPENDED)
    guests.reboot()
    async with guests.open() as worker:
        await worker.at_rest()
        assert worker.record(machine_id).state is State.SUSPENDED and before.id not in guests.networks.plugged
        await worker.start(machine_id)
        record = await worker.reaches(machine_id, State.STARTED)
        assert record.running is not None and before.running is not None
        assert record.running.instance_id == before.running.instance_id and guests.host.memories == set()
        assert (await worker.get(machine_id)).events[0].resumed and before.id in guests.networks.plugged
        check_at_rest(guests)


async def test_the_network_of_a_suspended_guest_is_mended_without_a_process_that_has_it(guests: MemoryWorld) -> None:
    async with guests.open() as worker:
        await worker.app()
        machine_id = await suspended(worker)
        record = worker.record(machine_id)
        guests.networks.plugged.clear()
        guests.networks.torn[record.id] = "its namespace is gone"
        assert [finding.kind for finding in await worker.reconciler.once()] == [Kind.LOST_NETWORK]
        assert record.id in guests.networks.plugged and await worker.reconciler.find() == []


async def test_a_started_guest_that_was_suspended_behind_its_nodes_back_goes_on(guests: MemoryWorld) -> None:
    async with guests.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        await worker.parts.deps.driver.suspend(worker.record(machine_id).id)
        assert [finding.kind for finding in await worker.reconciler.once()] == [Kind.LEFT_HELD]
        check_at_rest(guests)


async def test_a_guest_whose_memory_is_lost_is_started_cold_and_its_events_say_so(guests: MemoryWorld) -> None:
    async with guests.open() as worker:
        await worker.app()
        machine_id = await suspended(worker, restart={"policy": "no"})
        before = worker.record(machine_id)
        guests.host.spoilt.add(before.id)
        await worker.start(machine_id)
        await worker.at_rest()
        record = worker.record(machine_id)
        assert record.state is State.STARTED and record.running is not None and before.running is not None
        assert record.running.instance_id != before.running.instance_id and record.restarts == 0
        events = (await worker.get(machine_id)).events
        assert worker.events(machine_id)[-3:] == ["start/starting", "exit/stopped", "start/started"]
        started, ended = events[0], events[1]
        assert not started.resumed and ended.request is not None
        assert "snapshot cannot be used" in ended.request.exit_event.fault and ended.request.exit_event.restarting
        assert (
            ended.error == "it could not be resumed and is started cold: its disks are as they were, its memory is lost"
        )
        check_at_rest(guests)


async def test_a_stop_of_a_suspended_guest_takes_its_memory_along(guests: MemoryWorld) -> None:
    async with guests.open() as worker:
        await worker.app()
        machine_id = await suspended(worker)
        await worker.stop(machine_id)
        await worker.reaches(machine_id, State.STOPPED)
        assert guests.host.memories == set()
        check_at_rest(guests)


async def test_a_guest_that_fails_is_started_again_by_its_policy(guests: MemoryWorld) -> None:
    """Also when nothing of it says so but the fault: an exit code of 0 is no success then."""
    async with guests.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "on-failure"})
        guests.host.end(worker.record(machine_id).id, 0, fault="kernel panic: not syncing")
        await guests.clock.sleep(5)
        assert worker.record(machine_id).restarts == 1
        await worker.reaches(machine_id, State.STARTED)
        check_at_rest(guests)
