"""Facts about volumes that are made from snapshots and from other volumes."""

import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.volume import CreateVolumeRequest
from hawker.errors import NoRoom, NotFound, Unprocessable, WrongState
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import VOLUMES, Fstype, VolumeState
from hawker.volume.restore import VolumeOrigin, completed
from tests.volume.shelf import Shelf

pytestmark = pytest.mark.anyio
ORIGIN = VolumeOrigin(
    what="snapshot vs_1", size_gb=4, fstype=Fstype.EXT4, encrypted=False, key=None, guest_written=False
)


def test_an_option_an_order_leaves_open_is_as_the_origin_has_it() -> None:
    order = completed(CreateVolumeRequest(name="data"), ORIGIN)
    assert order == CreateVolumeRequest(name="data", size_gb=4, fstype="ext4")
    assert completed(CreateVolumeRequest(name="data", size_gb=9, encrypted=False), ORIGIN).size_gb == 9


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"size_gb": 3}, "size_gb: snapshot vs_1 needs at least 4 GB, not 3"),
        ({"fstype": "raw"}, "fstype: snapshot vs_1 has ext4"),
        ({"encrypted": True}, "encrypted: snapshot vs_1 is not encrypted"),
    ],
)
def test_an_option_that_contradicts_the_origin_is_refused_by_name(field: dict[str, object], says: str) -> None:
    with pytest.raises(Unprocessable, match=says):
        completed(CreateVolumeRequest(name="data", **field), ORIGIN)  # type: ignore[arg-type]


async def test_a_restored_volume_has_what_the_snapshot_holds_and_may_be_larger(shelf: Shelf) -> None:
    source = await shelf.written(size_gb=2)
    snapshot_id = await shelf.taken(source)
    shelf.write(source)
    restored = await shelf.create(name="again", snapshot_id=snapshot_id, size_gb=5)
    assert (restored.state, restored.size_gb) == ("created", 5)
    assert (shelf.content(restored.id), shelf.content(source)) == (1, 2)
    file = shelf.world.disks.files[VolumeId(restored.id)]
    assert file.size_bytes == file.filesystem_bytes == 5 << 30


async def test_a_fork_has_what_its_source_holds_and_goes_its_own_way(shelf: Shelf) -> None:
    source = await shelf.written(size_gb=2)
    await shelf.worker.started(mounts=[{"volume": source, "path": "/data"}])
    fork = await shelf.create(name="branch", source_volume_id=source)
    assert (fork.state, fork.size_gb, fork.attached_machine_id) == ("created", 2, None)
    shelf.write(fork.id)
    assert (shelf.content(fork.id), shelf.content(source)) == (2, 1)


@pytest.mark.parametrize("state", [VolumeState.CREATING, VolumeState.ENABLING_REMOTE_EXPORT, VolumeState.HYDRATING])
async def test_a_volume_is_not_extended_until_its_fork_is_copied(shelf: Shelf, state: VolumeState) -> None:
    source = await shelf.written(size_gb=2)
    fork = await shelf.create(name="branch", source_volume_id=source)
    store = shelf.worker.store
    record = store.get(VOLUMES, fork.id)
    assert record is not None
    await store.write(lambda tx: tx.put(VOLUMES, fork.id, msgspec.structs.replace(record, state=state)))
    if state is VolumeState.HYDRATING:
        assert (await shelf.worker.extend_volume(source, 6)).volume.size_gb == 6
        return
    with pytest.raises(WrongState, match=f"is being forked as {fork.id}: extend it once that is made"):
        await shelf.worker.extend_volume(source, 6)
    assert shelf.world.disks.files[source].size_bytes == 2 << 30


async def test_two_forks_of_one_volume_are_both_made(shelf: Shelf) -> None:
    source = await shelf.written()
    forks = [await shelf.create(name=f"branch{number}", source_volume_id=source) for number in range(2)]
    assert [shelf.content(fork.id) for fork in forks] == [1, 1]


async def test_an_order_from_both_is_refused(shelf: Shelf) -> None:
    with pytest.raises(Unprocessable, match="snapshot_id and source_volume_id"):
        await shelf.create(snapshot_id="vs_1", source_volume_id="vol_1")


async def test_a_missing_snapshot_is_not_found(shelf: Shelf) -> None:
    for order in ({"snapshot_id": "vs_0000000000000000"}, {"source_volume_id": "vol_0000000000000000"}):
        with pytest.raises(NotFound):
            await shelf.create(**order)


async def test_a_snapshot_of_another_organization_is_not_found(shelf: Shelf) -> None:
    await shelf.worker.api.call(CREATE_APP, body=CreateAppRequest(name="theirs", org_slug="other"))
    theirs = (await shelf.create(app="theirs")).id
    with pytest.raises(NotFound, match=f"volume {theirs} not found"):
        await shelf.create(source_volume_id=theirs)


async def test_another_app_of_the_organization_may_be_copied(shelf: Shelf) -> None:
    await shelf.worker.app("back")
    source = (await shelf.create(app="back")).id
    assert (await shelf.create(source_volume_id=source)).state == "created"


async def test_neither_a_deleted_volume_nor_a_failed_snapshot_is_copied(shelf: Shelf) -> None:
    source = await shelf.written()
    await shelf.delete(source)
    with pytest.raises(WrongState, match="pending_destroy, and cannot be forked"):
        await shelf.create(source_volume_id=source)
    broken = await shelf.written()
    del shelf.world.disks.files[broken]
    failed = await shelf.snapshot(broken)
    await shelf.worker.at_rest()
    with pytest.raises(WrongState, match="failed, and cannot be restored"):
        await shelf.create(snapshot_id=failed)


async def test_a_copy_that_would_fill_the_disk_is_refused_and_nothing_made(shelf: Shelf) -> None:
    source = await shelf.written()
    shelf.world.copies.free_bytes = 0
    with pytest.raises(NoRoom, match=f"copy of volume {source}"):
        await shelf.create(source_volume_id=source)
    assert await shelf.list() == [source]


async def test_a_snapshot_whose_file_is_gone_makes_no_volume(shelf: Shelf) -> None:
    source = await shelf.written()
    snapshot_id = await shelf.taken(source)
    del shelf.world.copies.snapshots[SnapshotId(snapshot_id)]
    with pytest.raises(Exception, match="could not be made"):
        await shelf.create(snapshot_id=snapshot_id)
    assert [key for key, _ in shelf.worker.store.scan(VOLUMES)] == [source]
    assert list(shelf.world.disks.files) == [source]
