import pytest

from hawker.sim.node.inspect import look
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def test_it_sees_what_runs_what_is_mounted_and_how_it_ended(worker: SimWorker, stall: MemoryWorld) -> None:
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


async def test_it_sees_volumes_their_sizes_and_which_machine_uses_which(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    machine_id = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    seen = stall.seen()
    assert seen.volumes == {volume.id: 2 << 30} and seen.volumes_mounted == {volume.id}
    assert seen.uses == {machine_id: volume.id} and seen.volumes_remade == frozenset()


async def test_it_sees_the_processes_of_machines_with_containers(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started()
    machine_id = await worker.started(containers=[{"name": "web", "image": "hawker/hello"}])
    await stall.clock.sleep(0.1)
    (states,) = [stall.seen().processes[each] for each in stall.seen().processes]
    assert set(stall.seen().processes) == {machine_id}
    assert [(state.name, state.run) for state in states] == [("web", 1)]
