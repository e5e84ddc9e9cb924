"""Facts about what is done to volumes by itself: once a day, over restarts and clocks that are set."""

import msgspec
import pytest

from hawker.config.machine import Mount
from hawker.ids import AppName, VolumeId
from hawker.node import Capacity
from hawker.record.volume import VOLUMES, VolumeRecord, VolumeState
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.time_window import DAY_S
from hawker.volume.disks import Disk, Usage
from hawker.volume.maintenance import Growth, larger_size
from hawker.volume.retention import GRACE_S
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


VOLUME = VolumeRecord(
    id=VolumeId("vol_0000000000000001"),
    app=AppName("stall"),
    name="data",
    region="local",
    state=VolumeState.CREATED,
    size_gb=10,
    created_at=0.0,
    updated_at=0.0,
)
MOUNT = Mount(name="data", path="/data", extend_threshold_percent=80, add_size_gb=5, size_gb_limit=18)


def used(percent: int) -> Usage:
    return Usage(block_size=4096, blocks=100, blocks_free=100 - percent, blocks_avail=100 - percent)


@pytest.mark.parametrize(("percent", "size_gb"), [(0, None), (79, None), (80, 15), (100, 15)])
def test_a_volume_grows_from_its_threshold_on(percent: int, size_gb: int | None) -> None:
    assert larger_size(VOLUME, MOUNT, used(percent), 500) == size_gb


def test_a_volume_grows_up_to_its_limit_and_the_node_s() -> None:
    at_15 = msgspec.structs.replace(VOLUME, size_gb=15)
    assert larger_size(at_15, MOUNT, used(90), 500) == 18
    assert larger_size(msgspec.structs.replace(VOLUME, size_gb=18), MOUNT, used(90), 500) is None
    assert larger_size(VOLUME, msgspec.structs.replace(MOUNT, size_gb_limit=None), used(90), 12) == 12


def test_without_a_threshold_or_a_step_it_stays() -> None:
    for mount in (Mount(name="data", path="/data"), msgspec.structs.replace(MOUNT, add_size_gb=None)):
        assert larger_size(VOLUME, mount, used(100), 500) is None


@pytest.fixture
async def growth(worker: SimWorker, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> Growth:
    """Of a worker with one machine, whose volume is nearly full."""
    await worker.volume("data", size_gb=1)
    mount = {"name": "data", "path": "/data", "extend_threshold_percent": 80, "add_size_gb": 1, "size_gb_limit": 3}
    await worker.started(mounts=[mount])

    async def nearly_full(disk: Disk) -> Usage:
        return used(95)

    monkeypatch.setattr(stall.disks, "usage", nearly_full)
    deps = worker.parts.deps
    return Growth(deps.store, deps.settings, deps.clock, deps.disks, worker.parts.volumes)


def size(worker: SimWorker) -> int:
    (record,) = [record for _, record in worker.store.scan(VOLUMES)]
    return record.size_gb


@pytest.mark.anyio
async def test_a_full_volume_grows_step_by_step_to_its_limit(worker: SimWorker, growth: Growth) -> None:
    for wanted in (2, 3, 3):
        await growth.once()
        await worker.at_rest()
        assert size(worker) == wanted


@pytest.mark.anyio
async def test_one_that_has_yet_to_be_mounted_anew_does_not_grow_again(
    worker: SimWorker, stall: MemoryWorld, growth: Growth
) -> None:
    stall.disks.grows = False
    for _ in range(2):
        await growth.once()
        await worker.at_rest()
        assert size(worker) == 2


@pytest.mark.anyio
async def test_a_full_host_is_waited_for(worker: SimWorker, stall: MemoryWorld, growth: Growth) -> None:
    room, stall.room = stall.room, Capacity(cpus=4, memory_mib=1024, disk_mib=1)
    await growth.once()
    assert size(worker) == 1
    stall.room = room
    await growth.once()
    assert size(worker) == 2
