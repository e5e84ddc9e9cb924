"""Facts about backups of a node's volumes, over a played host: what is promised arrives, and only its owner gets it."""

import anyio
import pytest

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.volume import (
    CREATE_BACKUP,
    GET_BACKUP,
    LIST_BACKUPS,
    BackupParams,
    BackupState,
    VolumeBackup,
)
from hawker.errors import Damaged, NotFound, NotServed, Unprocessable
from hawker.ids import AppName, SnapshotId, VolumeId
from hawker.record.volume import SNAPSHOTS, SnapshotStatus, VolumeState, backup_resource
from hawker.sim.harness.loop import eventually
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import APP
from hawker.sim.node.world import MemoryWorld
from tests.volume.conftest import LOOKS_EVERY_S
from tests.volume.shelf import Shelf, of
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def begin(shelf: Shelf, volume_id: str) -> VolumeBackup:
    return await shelf.worker.api.call(CREATE_BACKUP, params=of(volume_id))


async def look(shelf: Shelf, volume_id: str, snapshot: str, app: str = APP) -> VolumeBackup:
    params = BackupParams(app_name=app, volume_id=volume_id, snapshot=snapshot)
    return await shelf.worker.api.call(GET_BACKUP, params=params)


async def saved(shelf: Shelf, volume_id: str) -> VolumeBackup:
    begun = await begin(shelf, volume_id)
    await shelf.worker.at_rest(every_s=1.0)
    return await look(shelf, volume_id, begun.snapshot)


async def kept(shelf: Shelf) -> list[str]:
    return [each.backup for each in await shelf.worker.api.call(LIST_BACKUPS, params=AppParams(app_name=APP))]


async def test_a_backup_is_told_from_its_order_until_it_is_whole(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    begun = await begin(shelf, volume_id)
    assert begun.backup.startswith(f"{volume_id}/") and begun.state is not BackupState.CREATED
    await shelf.worker.at_rest(every_s=1.0)
    told = await look(shelf, volume_id, begun.snapshot)
    assert (told.state, told.backup, told.error) == (BackupState.CREATED, begun.backup, None)
    assert told.stored_bytes == told.sent_bytes == 4096
    assert await kept(shelf) == [begun.backup]


async def test_a_restored_volume_has_what_the_backup_holds_though_the_volume_is_gone(shelf: Shelf) -> None:
    volume_id = await shelf.written(size_gb=2)
    backup = await saved(shelf, volume_id)
    await shelf.delete(volume_id)
    await shelf.worker.parts.volumes.destroy(volume_id)
    await shelf.worker.at_rest()
    restored = await shelf.create("again", backup=backup.backup, size_gb=3)
    assert (restored.state, restored.size_gb, shelf.content(restored.id)) == ("created", 3, 1)
    assert shelf.volume(restored.id).made_gb == 3


async def test_restore_of_a_large_backup_may_take_many_hours(shelf: Shelf) -> None:
    clock, held = shelf.world.clock, anyio.Event()
    backup = await saved(shelf, await shelf.written())
    shelf.world.copies.held = held
    restored = await shelf.create("again", backup=backup.backup)
    await clock.sleep(12 * 3600)
    assert shelf.volume(restored.id).state is VolumeState.RESTORING
    held.set()
    await eventually(clock, lambda: shelf.volume(restored.id).state is VolumeState.CREATED, 60)
    [run] = shelf.worker.parts.runner.list(flow="volume_fetch")
    steps = [(each.step, each.attempt) for each in shelf.worker.parts.runner.history(run.run_id)]
    assert steps == [("prepare", 1), ("fill", 1), ("fit", 1)]


async def test_restores_of_backups_hold_up_no_snapshot_and_no_fork(shelf: Shelf) -> None:
    held, source = anyio.Event(), await shelf.written()
    backup = await saved(shelf, source)
    shelf.world.copies.held = held
    restored = [(await shelf.create(f"again{number}", backup=backup.backup)).id for number in range(3)]
    await shelf.taken(source)
    assert (await shelf.create("branch", source_volume_id=source)).state == "created"
    assert {shelf.volume(each).state for each in restored} == {VolumeState.RESTORING}
    held.set()
    await shelf.worker.at_rest(every_s=1.0)
    assert [shelf.content(each) for each in restored] == [1, 1, 1]


async def test_runs_that_sent_backups_are_forgotten_with_their_volume(shelf: Shelf) -> None:
    worker, volume_id = shelf.worker, await shelf.written()
    await saved(shelf, volume_id)
    assert len(worker.parts.runner.list(resource=backup_resource(volume_id))) == 1
    await shelf.delete(volume_id)
    await worker.parts.volumes.destroy(volume_id)
    await shelf.world.clock.sleep(shelf.world.settings.destroyed_kept_s + 2 * LOOKS_EVERY_S)
    assert worker.parts.runner.list(resource=backup_resource(volume_id)) == []


@pytest.mark.parametrize(
    "name", ["vol_1", "../../other/web/vol_a/20261123T161500Z-aaaa", "vol_a/20261123T161500Z-aaaa"]
)
async def test_a_backup_that_is_none_of_the_app_is_not_found(shelf: Shelf, name: str) -> None:
    with pytest.raises(NotFound):
        await shelf.create("again", backup=name)


async def test_another_app_sees_and_restores_nothing_of_it(shelf: Shelf) -> None:
    backup = await saved(shelf, volume_id := await shelf.written())
    await shelf.worker.api.call(CREATE_APP, body=CreateAppRequest(name="other", org_slug="personal"))
    assert await shelf.worker.api.call(LIST_BACKUPS, params=AppParams(app_name="other")) == ()
    with pytest.raises(NotFound):
        await shelf.create("again", app="other", backup=backup.backup)
    with pytest.raises(NotFound):
        await look(shelf, volume_id, backup.snapshot, app="other")


async def test_an_order_names_one_origin(shelf: Shelf) -> None:
    with pytest.raises(Unprocessable, match="made from one of them"):
        await shelf.create("again", backup="vol_a/20261123T161500Z-aaaa", snapshot_id="vs_1")


async def test_a_restored_volume_is_not_smaller_than_its_backup(shelf: Shelf) -> None:
    backup = await saved(shelf, await shelf.written(size_gb=2))
    with pytest.raises(Unprocessable, match="needs at least 2 GB"):
        await shelf.create("again", backup=backup.backup, size_gb=1)


async def test_the_snapshot_goes_when_the_backup_has_ended(shelf: Shelf) -> None:
    backup = await saved(shelf, await shelf.written())
    await eventually(shelf.world.clock, lambda: shelf.world.copies.snapshots == {}, 600)
    assert shelf.worker.store.get(SNAPSHOTS, backup.snapshot) is None


async def test_a_place_that_is_away_delays_a_backup(shelf: Shelf) -> None:
    shelf.world.backups.troubles += [ScriptedFailure("save", after=False)] * 20
    backup = await saved(shelf, await shelf.written())
    assert backup.state is BackupState.CREATED and list(shelf.world.backups.sent.values()) == [1]


async def test_a_snapshot_that_fails_fails_its_backup_which_says_so(shelf: Shelf) -> None:
    shelf.world.copies.troubles += [ScriptedFailure("take", after=False)] * 5
    backup = await saved(shelf, await shelf.written())
    assert backup.state is BackupState.FAILED and "could not be taken" in (backup.error or "")
    assert shelf.record(backup.snapshot).status is SnapshotStatus.FAILED
    assert await kept(shelf) == []


async def test_a_volume_that_its_disk_cannot_read_has_no_backup_and_says_so_at_once(shelf: Shelf) -> None:
    volume_id = VolumeId(await shelf.written())
    shelf.world.disks.rot[volume_id] = frozenset({3})
    backup = await saved(shelf, volume_id)
    assert backup.state is BackupState.FAILED and "its disk is damaged" in (backup.error or "")
    run = shelf.worker.parts.backups.run(AppName(APP), volume_id, SnapshotId(backup.snapshot))
    assert isinstance(run.failure, Damaged) and await kept(shelf) == []


async def test_backups_of_a_volume_come_one_after_the_other(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    first = await saved(shelf, volume_id)
    shelf.write(volume_id)
    await shelf.world.clock.sleep(2)
    second = await saved(shelf, volume_id)
    assert await kept(shelf) == [first.backup, second.backup]
    for backup, content in ((first, 1), (second, 2)):
        assert shelf.content((await shelf.create("again", backup=backup.backup)).id) == content


async def test_a_node_that_sends_backups_nowhere_says_so(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    parts = shelf.worker.parts.backups
    parts._backups = None
    with pytest.raises(NotServed, match="--backup-url"):
        await begin(shelf, volume_id)


@pytest.mark.parametrize("step", ["await_snapshot", "send"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_daemon_that_dies_in_a_backup_finishes_it_in_its_next_life(
    stall: MemoryWorld, step: str, moment: str
) -> None:
    stall.crash_points.burns_in = f"volume_backup.{step} {moment}"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.app()
            shelf = Shelf(stall, worker)
            await saved(shelf, await shelf.written())
    stall.crash(keep=0)
    stall.crash_points.burns_in = None
    async with stall.open() as worker:
        await worker.at_rest(every_s=1.0)
        [backup] = await kept(Shelf(stall, worker))
        assert list(stall.backups.sent.values()) == [1]
        assert stall.disks.files[VolumeId(backup.partition("/")[0])].content == 1
        check_at_rest(stall)


async def test_a_daemon_that_dies_in_a_restore_finishes_it_in_its_next_life(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        backup = await saved(shelf, await shelf.written())
    stall.crash_points.burns_in = "volume_fetch.fill after"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).create("again", backup=backup.backup)
    stall.crash(keep=0)
    stall.crash_points.burns_in = None
    async with stall.open() as worker:
        await worker.at_rest(every_s=1.0)
        assert sorted(each.content for each in stall.disks.files.values()) == [1, 1]
        check_at_rest(stall)
