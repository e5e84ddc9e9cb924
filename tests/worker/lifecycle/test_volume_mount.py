"""A machine's volume on the host: mounted before each launch, given back once nothing of the machine runs."""

import anyio
import pytest

from hawker.ids import VolumeId
from hawker.machine import State
from hawker.record.volume import VOLUMES, VolumeState
from hawker.runtime.fake_host import FakeFault
from hawker.runtime.spec import MountSpec
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
MOUNT = [{"name": "data", "path": "/data"}]


async def test_the_instance_is_told_where_to_see_it(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = worker.record(await worker.started(mounts=MOUNT)).id
    instance = stall.host.look(machine_id)
    assert instance is not None
    assert instance.spec.mounts == (MountSpec(source=f"/volumes/{volume.id}/mounted", target="/data", mapped=True),)


async def test_a_volume_is_given_back_at_each_stop_and_mounted_at_each_start(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MOUNT)
    for _ in range(2):
        await worker.stop(machine_id)
        await worker.reaches(machine_id, State.STOPPED)
        assert stall.disks.attached == set()
        await worker.start(machine_id)
        await worker.reaches(machine_id, State.STARTED)
        assert stall.disks.attached == {volume.id}
    check_at_rest(stall)


async def test_a_workload_that_ends_gives_it_back(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MOUNT, restart={"policy": "no"})
    stall.host.end(worker.record(machine_id).id, 0)
    await worker.reaches(machine_id, State.STOPPED)
    assert stall.disks.attached == set()
    check_at_rest(stall)


async def test_an_update_that_leaves_the_machine_off_gives_it_back(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MOUNT)
    await worker.update(machine_id, order={"skip_launch": True}, mounts=MOUNT)
    await worker.reaches(machine_id, State.STOPPED)
    assert stall.disks.attached == set()
    check_at_rest(stall)


async def test_a_damaged_one_fails_the_start_with_the_reason_and_is_kept(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.stopped(mounts=MOUNT)
    stall.disks.files[VolumeId(volume.id)].damaged = True
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.FAILED)
    event = (await worker.get(machine_id)).events[0]
    assert event.error is not None and "is damaged" in event.error
    assert VolumeId(volume.id) in stall.disks.files
    check_at_rest(stall)


async def test_a_launch_that_fails_gives_it_back(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.volume("data", size_gb=1)
    machine_id = await worker.stopped(mounts=MOUNT)
    for _ in range(3):
        stall.host.script("start", FakeFault(error=OSError("no")))
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.FAILED)
    assert stall.disks.attached == set()
    check_at_rest(stall)


async def test_a_trouble_that_passes_only_delays_the_start(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.volume("data", size_gb=1)
    stall.disks.troubles += [ScriptedFailure("attach", after=False), ScriptedFailure("attach", after=True)]
    await worker.started(mounts=MOUNT)
    check_at_rest(stall)


async def test_a_machine_waits_for_a_volume_that_is_still_made(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None
    table = worker.parts.deps.volumes
    await worker.store.write(lambda tx: table.change(tx, record, state=VolumeState.RESTORING))
    machine = await worker.create(mounts=MOUNT)
    with anyio.move_on_after(30):
        await worker.reaches(machine.id, State.STARTED)
        pytest.fail("it was started before its volume was there")
    held = worker.store.get(VOLUMES, volume.id)
    assert held is not None and stall.disks.attached == set()
    await worker.store.write(lambda tx: table.change(tx, held, state=VolumeState.CREATED))
    await worker.reaches(machine.id, State.STARTED)
    assert stall.disks.attached == {volume.id}
