"""Volumes against the host: each thing that can be wrong, as a finding, and what is left after its repair. No repair
removes a file that no record calls destroyed.
"""

from typing import Any

import msgspec
import pytest

from hawker.ids import MachineId, VolumeId
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.volume import GONE_VOLUMES, VOLUMES, Fstype, VolumeRecord, VolumeState, volume_resource
from hawker.sim.node.fake_volumes import FakeVolume
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.reconcile import Finding, Kind
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
MOUNT = [{"name": "data", "path": "/data"}]
UNKNOWN = VolumeId("vol_000000000000bad0")


@pytest.fixture
def stall(stall: MemoryWorld) -> MemoryWorld:
    stall.reconciles = False
    return stall


def kinds(findings: list[Finding]) -> set[tuple[Kind, str]]:
    return {(finding.kind, finding.about) for finding in findings}


async def repaired(worker: SimWorker) -> set[tuple[Kind, str]]:
    """What was found and repaired; nothing is found afterwards but what is only told."""
    found = await worker.reconciler.once()
    await worker.at_rest(every_s=0.1)
    return kinds(found)


async def changed(worker: SimWorker, volume_id: str, **fields: Any) -> VolumeRecord:
    record = worker.store.get(VOLUMES, volume_id)
    assert record is not None
    other = msgspec.structs.replace(record, **fields)
    await worker.store.write(lambda tx: tx.put(VOLUMES, other.id, other))
    return other


async def test_a_healthy_worker_has_no_findings(worker: SimWorker) -> None:
    await worker.volume("data", size_gb=1)
    await worker.volume("free", size_gb=1)
    await worker.started(mounts=MOUNT)
    assert await worker.reconciler.find() == []


async def test_a_file_that_no_record_knows_is_told_and_kept(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.disks.files[UNKNOWN] = FakeVolume(1 << 30, 1 << 30, Fstype.EXT4)
    for _ in range(2):
        assert await repaired(worker) == {(Kind.FOREIGN_VOLUME, UNKNOWN)}
    assert UNKNOWN in stall.disks.files


async def test_a_file_whose_record_says_destroyed_is_removed(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.delete_volume(volume.id)
    await worker.parts.volumes.destroy(VolumeId(volume.id))
    await worker.at_rest()
    stall.disks.files[VolumeId(volume.id)] = FakeVolume(1 << 30, 1 << 30, Fstype.EXT4)
    assert await repaired(worker) == {(Kind.STRAY_VOLUME, volume.id)}
    assert stall.disks.files == {} and worker.store.get(GONE_VOLUMES, volume.id) is not None
    check_at_rest(stall)


async def test_one_that_is_deleted_and_can_be_had_back_is_no_finding(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.delete_volume(volume.id)
    assert await worker.reconciler.find() == [] and VolumeId(volume.id) in stall.disks.files


async def test_a_file_that_is_lost_is_told_and_nothing_is_made_in_its_place(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    volume = await worker.volume("data", size_gb=1)
    stall.disks.files.clear()
    assert await repaired(worker) == {(Kind.LOST_VOLUME, volume.id)}
    assert stall.disks.files == {} and worker.store.get(VOLUMES, volume.id) is not None


async def test_a_stray_mount_or_device_is_let_go_of(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.disks.stray.add("/dev/loop7")
    assert await repaired(worker) == {(Kind.STRAY_VOLUME_MOUNT, "/dev/loop7")} and not stall.disks.stray


async def test_one_that_nobody_uses_is_unmounted(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    stall.disks.attached.add(VolumeId(volume.id))
    assert await repaired(worker) == {(Kind.VOLUME_LEFT_MOUNTED, volume.id)}
    check_at_rest(stall)


async def test_one_of_a_machine_that_is_off_is_unmounted_by_a_run_of_the_machine(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.stopped(mounts=MOUNT)
    stall.disks.attached.add(VolumeId(volume.id))
    assert await repaired(worker) == {(Kind.VOLUME_LEFT_MOUNTED, volume.id)}
    await worker.reaches(machine_id, State.STOPPED)
    check_at_rest(stall)


async def test_one_that_a_running_machine_lost_here_is_mounted_again(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MOUNT)
    before = worker.record(machine_id)
    stall.disks.attached.clear()
    assert await repaired(worker) == {(Kind.LOST_VOLUME_MOUNT, volume.id)}
    assert stall.disks.attached == {volume.id} and worker.record(machine_id) == before
    check_at_rest(stall)


@pytest.mark.parametrize(
    ("state", "becomes"),
    [(VolumeState.CREATING, VolumeState.CREATED), (VolumeState.EXTENDING, VolumeState.CREATED)],
)
async def test_a_copy_under_way_without_a_run_is_begun_again(
    worker: SimWorker, stall: MemoryWorld, state: VolumeState, becomes: VolumeState
) -> None:
    volume = await worker.volume("data", size_gb=1)
    await changed(worker, volume.id, state=state)
    assert (Kind.FORSAKEN_VOLUME, volume.id) in await repaired(worker)
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None and record.state is becomes and stall.disks.made[record.id] == 1
    check_at_rest(stall)


async def test_a_restore_of_a_backup_without_a_run_is_begun_again_as_one(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    backup = f"personal/shop/{volume.id}/20261123T161500Z-aaaa"
    await changed(worker, volume.id, state=VolumeState.RESTORING, source_backup=backup)
    assert (Kind.FORSAKEN_VOLUME, volume.id) in await repaired(worker)
    flows = [run.flow for run in worker.parts.runner.list(resource=volume_resource(VolumeId(volume.id)))]
    assert flows == ["volume_fetch", "volume_create"] and stall.disks.made[VolumeId(volume.id)] == 1
    check_at_rest(stall)


async def test_an_attachment_to_a_machine_that_is_gone_is_taken_back(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await changed(worker, volume.id, machine=MachineId("00000000000bad"))
    assert (Kind.WRONG_ATTACHMENT, volume.id) in await repaired(worker)
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None and record.machine is None
    check_at_rest(stall)


async def test_a_machine_that_has_a_volume_is_believed(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MOUNT)
    await changed(worker, volume.id, machine=None)
    assert (Kind.WRONG_ATTACHMENT, volume.id) in await repaired(worker)
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None and record.machine == machine_id
    assert worker.store.get(MACHINES, machine_id) is not None
    check_at_rest(stall)


async def test_the_last_word_of_a_volume_is_forgotten_in_time(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.delete_volume(volume.id)
    await worker.parts.volumes.destroy(VolumeId(volume.id))
    await worker.at_rest()
    await worker.reconciler.once()
    assert worker.store.get(GONE_VOLUMES, volume.id) is not None
    await stall.clock.sleep(stall.settings.destroyed_kept_s + 1)
    await worker.reconciler.once()
    assert worker.store.get(GONE_VOLUMES, volume.id) is None


async def test_a_volume_that_was_detached_stays_so(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine = await worker.stopped(mounts=MOUNT)
    await changed(worker, volume.id, machine=None)
    assert await repaired(worker) == set()
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None and record.machine is None
    await worker.start(machine)
    await worker.reaches(machine, State.STARTED)
    check_at_rest(stall)


async def test_the_holder_of_a_file_system_is_told(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    stall.disks.holders[VolumeId(volume.id)] = ("process 7 (exporter) in mount namespace 5",)
    (found,) = await worker.reconciler.once()
    assert (found.kind, found.about) == (Kind.HELD_VOLUME, volume.id) and "exporter" in found.detail
    machine = await worker.started(mounts=MOUNT)
    assert await repaired(worker) == set()  # it is in use, and as large as it should be
    await changed(worker, volume.id, behind=True)
    assert await repaired(worker) == {(Kind.HELD_VOLUME, volume.id)}
    answer = await worker.extend_volume(volume.id, 1)
    assert answer.needs_restart and answer.held_by == ("process 7 (exporter) in mount namespace 5",)
    await worker.destroy(machine, force=True)
