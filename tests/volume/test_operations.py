"""The operations on volumes: admitted in one transaction, refused with the reason, promised once acknowledged."""

from typing import Any

import msgspec
import pytest

from hawker.api.contract.volume import CreateVolumeRequest
from hawker.clock import ManualClock
from hawker.errors import NoRoom, NotFound, Unprocessable, WrongState
from hawker.ids import AppName, VolumeId, is_volume_id
from hawker.machine import State
from hawker.node import Capacity
from hawker.record.capacity import used
from hawker.record.volume import GONE_VOLUMES, VOLUMES, Fstype, VolumeRecord, VolumeState
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.volume import operations
from hawker.volume.operations import new_volume
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_a_volume_takes_room_for_as_long_as_it_is_there(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    assert used(worker.store).disk_mib == 2048
    await worker.delete_volume(volume.id)
    assert used(worker.store).disk_mib == 2048
    await worker.parts.volumes.destroy(VolumeId(volume.id))
    await worker.at_rest()
    assert used(worker.store).disk_mib == 0 and stall.disks.files == {}
    assert worker.store.get(VOLUMES, volume.id) is None and worker.store.get(GONE_VOLUMES, volume.id) is not None
    check_at_rest(stall)


async def test_no_more_is_promised_than_there_is(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.room = Capacity(cpus=4, memory_mib=1024, disk_mib=3 * 1024)
    volume = await worker.volume("data", size_gb=2)
    with pytest.raises(NoRoom, match="short of 1024 MiB of disk") as refused:
        await worker.volume("more", size_gb=2)
    assert refused.value.shortfall == {"disk_mb": 1024}
    with pytest.raises(NoRoom):
        await worker.extend_volume(volume.id, 4)
    assert (await worker.extend_volume(volume.id, 3)).volume.size_gb == 3


async def test_an_extension_only_grows_and_may_be_asked_twice(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    for _ in range(2):
        answer = await worker.extend_volume(volume.id, 4)
        assert (answer.volume.size_gb, answer.volume.state, answer.needs_restart) == (4, "created", False)
    for size_gb, says in ((3, "cannot be made smaller"), (501, "between 1 and 500")):
        with pytest.raises(Unprocessable, match=says):
            await worker.extend_volume(volume.id, size_gb)
    assert stall.disks.files[VolumeId(volume.id)].filesystem_bytes == 4 << 30


async def test_a_host_that_cannot_grow_what_is_in_use_says_so_and_does_it_with_the_next_launch(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    stall.disks.grows = False
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    answer = await worker.extend_volume(volume.id, 2)
    assert (answer.needs_restart, answer.volume.state) == (True, "created")
    await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert stall.disks.files[VolumeId(volume.id)].filesystem_bytes == 2 << 30
    assert not worker.parts.volumes.get(worker.record(machine_id).app, volume.id).behind
    check_at_rest(stall)


async def test_a_volume_with_a_machine_is_not_deleted(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    with pytest.raises(WrongState, match=f"attached to machine {machine_id}"):
        await worker.delete_volume(volume.id)


async def test_a_deleted_volume_stays_so_and_cannot_be_changed(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    first = await worker.delete_volume(volume.id)
    assert (first.state, await worker.delete_volume(volume.id)) == ("pending_destroy", first)
    with pytest.raises(WrongState, match="is pending_destroy and cannot be changed"):
        await worker.extend_volume(volume.id, 2)


async def test_only_what_was_let_go_of_is_destroyed(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    with pytest.raises(WrongState, match="not to be destroyed"):
        await worker.parts.volumes.destroy(VolumeId(volume.id))
    with pytest.raises(NotFound):
        await worker.parts.volumes.destroy(VolumeId("vol_0000000000000000"))
    assert VolumeId(volume.id) in stall.disks.files


async def test_an_app_has_a_bounded_number_of_volumes(worker: SimWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_VOLUMES", 2)
    for _ in range(2):
        await worker.volume("data", size_gb=1)
    with pytest.raises(Unprocessable, match="at most 2 volumes"):
        await worker.volume("data", size_gb=1)


async def test_a_volume_that_is_lost_with_its_app_is_let_go_of_by_force_only(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    with pytest.raises(WrongState, match="still has 1 volumes"):
        await worker.parts.apps.delete("stall")
    await worker.parts.apps.delete("stall", force=True)
    left = worker.store.get(VOLUMES, volume.id)
    assert left is not None and left.state is VolumeState.PENDING_DESTROY


NULLS = dict.fromkeys(CreateVolumeRequest.__struct_fields__)


def ordered(**fields: Any) -> VolumeRecord:
    body = msgspec.convert({"name": "data", **fields}, CreateVolumeRequest)
    return new_volume(ManualClock(), AppName("web"), "local", body, encrypted=False, max_gb=500)


@pytest.mark.parametrize("fields", [{}, {**NULLS, "name": "data"}], ids=["absent", "null"])
def test_what_is_not_said_is_the_contract_s_default(fields: dict[str, Any]) -> None:
    record = ordered(**fields)
    assert is_volume_id(record.id) and record.state is VolumeState.CREATING
    assert (record.size_gb, record.fstype, record.snapshot_retention, record.auto_backup) == (3, Fstype.EXT4, 5, True)
    assert record.machine is None and record.holds.disk_mib == 3 * 1024


def test_what_is_said_is_kept() -> None:
    record = ordered(name="my_data-2", size_gb=7, snapshot_retention=60, auto_backup_enabled=False)
    assert (record.name, record.size_gb, record.snapshot_retention, record.auto_backup) == ("my_data-2", 7, 60, False)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "is not a volume's name"),
        ({"name": "../etc"}, "is not a volume's name"),
        ({"name": "a" * 64}, "is not a volume's name"),
        ({"size_gb": 0}, "size_gb must be between 1 and 500"),
        ({"size_gb": -3}, "size_gb must be between 1 and 500"),
        ({"size_gb": 501}, "size_gb must be between 1 and 500"),
        ({"size_gb": 10**30}, "size_gb must be between 1 and 500"),
        ({"snapshot_retention": 0}, "snapshot_retention must be between 1 and 60"),
        ({"snapshot_retention": 61}, "snapshot_retention must be between 1 and 60"),
        ({"fstype": "raw"}, "raw volumes are not served"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Unprocessable, match=says):
        ordered(**fields)
