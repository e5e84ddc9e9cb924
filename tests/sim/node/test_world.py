import pytest

from hawker.errors import Unavailable
from hawker.machine import State
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld, look
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_inspector_sees_instances_mounts_and_exits(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.started())
    seen = look(stall.host, stall.rootfs, stall.networks, stall.disks, stall.copies)
    assert record.running is not None
    assert seen.running == seen.mounted == {record.id: record.running.instance_id}
    assert seen.instances == seen.directories == seen.networks == {record.id}
    stall.host.end(record.id, 3)
    assert [exit.exit_code for exit in (stall.seen().ended or {})[record.id]] == [3]


async def test_an_instance_that_was_launched_twice_is_doubled(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.started())
    stall.host.launch(stall.host.ever[record.id][0])
    assert stall.seen().doubled == {record.id}


async def test_inspector_sees_volumes_their_sizes_and_users(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    machine_id = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    seen = stall.seen()
    assert seen.volumes == {volume.id: 2 << 30} and seen.volumes_mounted == {volume.id}
    assert seen.uses == {machine_id: volume.id} and seen.volumes_remade == frozenset()


async def test_inspector_sees_processes_of_machines_with_containers(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started()
    machine_id = await worker.started(containers=[{"name": "web", "image": "hawker/hello"}])
    await stall.clock.sleep(0.1)
    (states,) = [stall.seen().processes[each] for each in stall.seen().processes]
    assert set(stall.seen().processes) == {machine_id}
    assert [(state.name, state.run) for state in states] == [("web", 1)]


async def test_a_life_that_is_left_leaves_machines_running(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.crash()
    async with stall.open() as worker:
        assert worker.record(machine_id).state is State.STARTED
        check_at_rest(stall)


async def test_a_death_ends_the_life_and_nothing_but_death_comes_out(stall: MemoryWorld) -> None:
    stall.crash_points.burns_at = 1
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.app()
            await worker.started()


async def test_a_crash_keeps_as_much_as_is_said(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.crash(keep=0)
    async with stall.open() as worker:
        assert worker.record(machine_id).state is not State.STARTED, "the launch was an ordered commit"
        await worker.reaches(machine_id, State.STARTED)
        check_at_rest(stall)


async def test_after_a_reboot_a_machine_that_ran_is_known_to_be_lost(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "no"})
    stall.crash()
    stall.reboot()
    async with stall.open() as worker:
        assert worker.record(machine_id).state is State.STOPPED
        await worker.at_rest()
        check_at_rest(stall)


async def test_error_in_a_life_of_the_daemon_is_raised_as_it_is(stall: MemoryWorld) -> None:
    with pytest.raises(Unavailable):
        async with stall.open():
            raise Unavailable("no")
