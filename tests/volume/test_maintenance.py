"""Facts about what is done to volumes by itself: once a day, over restarts and clocks that are set."""

import pytest

from hawker.ids import VolumeId
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.world import MemoryWorld
from hawker.volume.retention import DAY_S, GRACE_S
from tests.volume.shelf import Shelf

pytestmark = pytest.mark.anyio


def backups(shelf: Shelf, volume_id: str) -> int:
    there = shelf.worker.parts.snapshots.of_volume(shelf.worker.store, VolumeId(volume_id))
    return sum(record.automatic for record in there)


async def test_each_volume_is_snapshotted_once_a_day_and_old_ones_go(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=3)
    counted = []
    await shelf.world.clock.sleep(600)
    for _ in range(6):
        await shelf.world.clock.sleep(DAY_S)
        counted.append(backups(shelf, volume_id))
    assert counted[:3] == [1, 2, 3]
    assert set(counted[3:]) <= {3, 4}


async def test_a_volume_that_wants_none_has_none(shelf: Shelf) -> None:
    volume_id = await shelf.written(auto_backup_enabled=False)
    await shelf.world.clock.sleep(3 * DAY_S)
    assert backups(shelf, volume_id) == 0


async def test_restarts_neither_repeat_nor_lose_a_day(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        volume_id = await Shelf(stall, worker).written(snapshot_retention=60)
        await stall.clock.sleep(DAY_S + 600)
    for _ in range(3):
        async with stall.open() as worker:
            await stall.clock.sleep(600)
            assert backups(Shelf(stall, worker), volume_id) == 1
    await stall.clock.sleep(4 * DAY_S)
    async with stall.open() as worker:
        await stall.clock.sleep(600)
        assert backups(Shelf(stall, worker), volume_id) == 2, "days without a daemon are made up for once"


async def test_a_clock_that_is_set_ahead_costs_no_snapshot_and_no_deleted_volume(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=2, auto_backup_enabled=False)
    left = await shelf.written(auto_backup_enabled=False)
    snapshot_id = await shelf.taken(volume_id)
    await shelf.delete(left)
    shelf.world.clock.ahead_s += 400 * DAY_S
    await shelf.world.clock.sleep(GRACE_S - 3600)
    assert snapshot_id in shelf.world.copies.snapshots
    assert left in shelf.world.disks.files
    await shelf.world.clock.sleep(2 * 3600)
    assert left not in shelf.world.disks.files
    await shelf.world.clock.sleep(DAY_S)
    assert snapshot_id not in shelf.world.copies.snapshots


async def test_a_clock_that_is_set_back_keeps_nothing_for_longer(shelf: Shelf) -> None:
    volume_id = await shelf.written(auto_backup_enabled=False)
    await shelf.delete(volume_id)
    await shelf.world.clock.sleep(3600)
    shelf.world.clock.ahead_s -= 400 * DAY_S
    await shelf.world.clock.sleep(GRACE_S)
    assert volume_id not in shelf.world.disks.files


async def test_a_backup_that_finds_no_room_is_tried_again_later_and_harms_nobody(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=60)
    shelf.world.copies.free_bytes = 0
    await shelf.world.clock.sleep(DAY_S + 1800)
    assert backups(shelf, volume_id) == 0
    shelf.world.copies.free_bytes = 1 << 50
    await shelf.world.clock.sleep(3700)
    assert backups(shelf, volume_id) == 1


async def test_a_host_that_refuses_once_does_not_end_it(shelf: Shelf) -> None:
    volume_id = await shelf.written(snapshot_retention=1, auto_backup_enabled=False)
    snapshot_id = await shelf.taken(volume_id)
    shelf.world.copies.troubles.append(ScriptedFailure("drop", False))
    await shelf.world.clock.sleep(DAY_S + 600)
    assert snapshot_id not in shelf.world.copies.snapshots
    assert shelf.world.copies.troubles == []
