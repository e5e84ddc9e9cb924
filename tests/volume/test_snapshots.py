"""Facts about snapshots: what they hold, how they are told, and when they end."""

from pathlib import Path

import anyio
import pytest

from hawker.config.machine import Mount
from hawker.errors import NoRoom, NotFound, NotServed, Unprocessable, WrongState
from hawker.fsm.run import State as RunState
from hawker.machine import State
from hawker.record.volume import GONE_SNAPSHOTS, SNAPSHOTS, SNAPSHOTS_BY_VOLUME, SnapshotStatus, volume_resource
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Tx
from hawker.time_window import DAY_S
from hawker.volume import snapshots as module
from tests.volume.shelf import Shelf

pytestmark = pytest.mark.anyio


async def test_a_snapshot_holds_what_the_volume_held(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    snapshot_id = await shelf.taken(volume_id)
    shelf.write(volume_id)
    assert shelf.world.copies.snapshots[snapshot_id].content == 1


async def test_a_snapshot_is_told_as_the_api_has_it(shelf: Shelf) -> None:
    volume_id = await shelf.written(size_gb=2, snapshot_retention=9)
    snapshot_id = await shelf.snapshot(volume_id)
    [promised] = await shelf.snapshots(volume_id)
    assert (promised.id, promised.status) == (snapshot_id, "waiting")
    await shelf.worker.at_rest()
    [told] = await shelf.snapshots(volume_id)
    assert (told.status, told.retention_days, told.volume_size) == ("created", 9, 2 << 30)
    assert told.size == 2 << 30


async def test_while_one_is_under_way_another_is_refused(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    await shelf.snapshot(volume_id)
    with pytest.raises(WrongState, match=r"^failed_precondition: snapshot is already scheduled at \d{4}-.*Z$"):
        await shelf.snapshot(volume_id)
    await shelf.worker.at_rest()
    await shelf.taken(volume_id)
    assert len(await shelf.snapshots(volume_id)) == 2


async def test_snapshots_are_told_newest_first(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    taken = []
    for _ in range(3):
        taken.append(await shelf.taken(volume_id))
        await shelf.world.clock.sleep(5)
    assert [each.id for each in await shelf.snapshots(volume_id)] == taken[::-1]


async def test_one_that_fails_says_so_and_leaves_nothing(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    del shelf.world.disks.files[volume_id]
    snapshot_id = await shelf.snapshot(volume_id)
    await shelf.worker.at_rest()
    assert shelf.record(snapshot_id).status is SnapshotStatus.FAILED
    assert shelf.world.copies.snapshots == {}
    [run] = shelf.worker.parts.runner.list(resource=volume_resource(volume_id), flow="volume_snapshot")
    assert run.state is RunState.FAILED and "is not there" in (run.error or "")


async def test_a_snapshot_that_would_fill_the_disk_is_refused(shelf: Shelf) -> None:
    volume_id = await shelf.written(size_gb=3)
    shelf.world.copies.free_bytes = 1 << 30
    with pytest.raises(NoRoom, match="2048 MiB of disk are missing") as refused:
        await shelf.snapshot(volume_id)
    assert refused.value.shortfall == {"disk_mb": 2048}
    assert await shelf.snapshots(volume_id) == ()


async def test_a_volume_has_only_so_many(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SNAPSHOTS", 1)
    volume_id = await shelf.written()
    await shelf.taken(volume_id)
    with pytest.raises(Unprocessable, match="lower its snapshot_retention"):
        await shelf.snapshot(volume_id)


async def test_a_volume_of_another_app_is_not_found(shelf: Shelf) -> None:
    await shelf.worker.app("other")
    volume_id = (await shelf.create(app="other")).id
    with pytest.raises(NotFound):
        await shelf.snapshot(volume_id)
    with pytest.raises(NotFound):
        await shelf.snapshots(volume_id)


async def test_a_volume_that_is_deleted_is_not_snapshotted_but_keeps_its_snapshots(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=3)
    snapshot_id = await shelf.taken(volume_id)
    await shelf.delete(volume_id)
    with pytest.raises(WrongState, match="pending_destroy"):
        await shelf.snapshot(volume_id)
    await shelf.world.clock.sleep(2 * DAY_S)
    assert volume_id not in shelf.world.disks.files
    assert [each.id for each in await shelf.snapshots(volume_id)] == [snapshot_id]
    assert shelf.content((await shelf.create(snapshot_id=snapshot_id)).id) == 1


async def test_a_snapshot_is_removed_when_its_days_are_over_and_not_before(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=2, auto_backup_enabled=False)
    snapshot_id = await shelf.taken(volume_id)
    await shelf.world.clock.sleep(2 * DAY_S - 3600)
    assert [each.id for each in await shelf.snapshots(volume_id)] == [snapshot_id]
    await shelf.world.clock.sleep(2 * 3600)
    assert await shelf.snapshots(volume_id) == ()
    assert shelf.world.copies.snapshots == {}
    store = shelf.worker.store
    assert [store.count(SNAPSHOTS), store.count(SNAPSHOTS_BY_VOLUME), store.count(GONE_SNAPSHOTS)] == [0, 0, 0]


async def test_one_that_is_being_restored_outlives_its_days(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=1, auto_backup_enabled=False)
    snapshot_id = await shelf.taken(volume_id)
    await shelf.world.clock.sleep(DAY_S - 300)
    shelf.world.copies.held = anyio.Event()
    restored = await shelf.create(name="late", snapshot_id=snapshot_id)
    assert restored.state == "restoring"
    await shelf.world.clock.sleep(900)
    assert snapshot_id in shelf.world.copies.snapshots
    shelf.world.copies.held.set()
    await shelf.worker.at_rest()
    assert shelf.content(restored.id) == 1
    await shelf.world.clock.sleep(600)
    assert snapshot_id not in shelf.world.copies.snapshots


async def test_a_file_whose_record_is_gone_is_removed_by_the_next_daemon(stall: MemoryWorld) -> None:
    """Killed between the two."""
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await shelf.written(auto_backup_enabled=False)
        snapshot_id = await shelf.taken(volume_id)
        record = shelf.record(snapshot_id)

        def forget(tx: Tx) -> None:
            tx.delete(SNAPSHOTS, snapshot_id)
            tx.put(GONE_SNAPSHOTS, snapshot_id, record)

        await worker.store.write(forget)
    async with stall.open():
        await eventually(stall.clock, lambda: snapshot_id not in stall.copies.snapshots, 600)


async def test_a_file_that_no_record_knows_is_left_alone(shelf: Shelf) -> None:
    """The store may be older than the host: a backup was restored."""
    snapshot_id = await shelf.taken(await shelf.written())

    def forget(tx: Tx) -> None:
        tx.delete(SNAPSHOTS, snapshot_id)

    await shelf.worker.store.write(forget)
    await shelf.world.clock.sleep(7 * DAY_S)
    assert snapshot_id in shelf.world.copies.snapshots


async def test_a_node_without_volumes_says_so(worker: SimWorker) -> None:
    deps = worker.parts.deps
    with pytest.raises(NotServed):
        _ = module.Snapshots(deps.store, deps.driver, deps.clock, None, worker.parts.runner, worker.parts.quotas).copies


async def with_suspended(shelf: Shelf) -> str:
    volume_id = await shelf.written()
    machine_id = await shelf.worker.started(mounts=(Mount(volume=volume_id, path="/data"),))
    await shelf.worker.suspend(machine_id)
    await shelf.worker.reaches(machine_id, State.SUSPENDED)
    return volume_id


async def test_a_suspended_guest_s_volume_is_neither_copied_nor_forked(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path, guests=True)
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await with_suspended(shelf)
        with pytest.raises(WrongState, match=r"cannot be copied while machine \w+, which has it, is suspended"):
            await shelf.snapshot(volume_id)
        with pytest.raises(WrongState, match="start or stop that first"):
            await shelf.create("other", source_volume_id=volume_id)


async def test_a_frozen_container_s_volume_is(shelf: Shelf) -> None:
    await shelf.taken(await with_suspended(shelf))
