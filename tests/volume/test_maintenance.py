"""Facts about what is done to volumes by itself: once a day, over restarts and clocks that are set."""

from pathlib import Path

import msgspec
import pytest

from hawker.config.machine import Mount
from hawker.ids import AppName, VolumeId
from hawker.node import Capacity
from hawker.record.move import OPEN_MOVE_OF, MovePointer
from hawker.record.volume import VOLUMES, Fstype, VolumeRecord, VolumeState
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.time_window import DAY_S
from hawker.volume.disks import Disk, Usage
from hawker.volume.maintenance import TRIM_S, Growth, Trims, larger_size
from hawker.volume.moved_files import MovedFile
from hawker.volume.retention import GRACE_S
from tests.volume.conftest import LOOKS_EVERY_S
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


class Trimmed:
    """Stands for a host on which each call takes `each_s` and a file system has so many `parts`."""

    def __init__(self, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int]] = []
        self.parts, self.each_s = 3, 0.0
        self.refuses = False
        self._clock = stall.clock
        monkeypatch.setattr(stall.moved_files, "trim", self._trim)

    async def _trim(self, file: MovedFile, start: int) -> int | None:
        if self.refuses:
            raise OSError("the disk is gone")
        if start >= self.parts:
            return None
        await self._clock.sleep(self.each_s)
        self.calls.append((file.id, start))
        return start + 1


@pytest.fixture
def trimmed(stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> Trimmed:
    return Trimmed(stall, monkeypatch)


async def attached(worker: SimWorker) -> VolumeId:
    volume = await worker.volume("data", size_gb=1)
    await worker.started(mounts=[{"name": "data", "path": "/data"}])
    return VolumeId(volume.id)


async def test_a_volume_that_is_mounted_is_trimmed_once_a_day_and_a_free_one_never(
    worker: SimWorker, stall: MemoryWorld, trimmed: Trimmed
) -> None:
    volume_id = await attached(worker)
    await worker.volume("free", size_gb=1)
    await stall.clock.sleep(DAY_S + 120)
    assert trimmed.calls == [(volume_id, part) for part in range(3)]
    await stall.clock.sleep(DAY_S)
    assert trimmed.calls == 2 * [(volume_id, part) for part in range(3)]


async def test_a_trim_that_takes_long_goes_on_the_next_day(
    worker: SimWorker, stall: MemoryWorld, trimmed: Trimmed
) -> None:
    await attached(worker)
    trimmed.each_s = TRIM_S / 2
    await stall.clock.sleep(DAY_S + 300)
    assert [part for _, part in trimmed.calls] == [0, 1]
    await stall.clock.sleep(DAY_S)
    assert [part for _, part in trimmed.calls] == [0, 1, 2]
    await stall.clock.sleep(DAY_S)
    assert [part for _, part in trimmed.calls] == [0, 1, 2, 0, 1]


async def test_a_volume_that_moves_or_has_no_file_system_is_not_trimmed(
    worker: SimWorker, stall: MemoryWorld, trimmed: Trimmed
) -> None:
    volume_id = await attached(worker)
    deps = worker.parts.deps
    trims = Trims(deps.store, stall.clock, stall.moved_files)
    await worker.store.write(lambda tx: tx.put(OPEN_MOVE_OF, volume_id, MovePointer(move="m")))
    stall.clock.ahead_s += DAY_S
    await trims.once()
    assert trimmed.calls == []
    await worker.store.write(lambda tx: tx.delete(OPEN_MOVE_OF, volume_id))
    raw = msgspec.structs.replace(deps.volumes.get(worker.store, volume_id), fstype=Fstype.RAW)
    await worker.store.write(lambda tx: tx.put(VOLUMES, volume_id, raw))
    await trims.once()
    assert trimmed.calls == []


async def test_a_disk_that_refuses_a_trim_is_asked_again_the_next_day(
    worker: SimWorker, stall: MemoryWorld, trimmed: Trimmed
) -> None:
    await attached(worker)
    trimmed.refuses = True
    await stall.clock.sleep(DAY_S + 120)
    trimmed.refuses = False
    await stall.clock.sleep(DAY_S)
    assert [part for _, part in trimmed.calls] == [0, 1, 2]


async def test_a_setting_switches_trims_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld(tmp_path, reconcile_every_s=LOOKS_EVERY_S, volume_discards=False)
    trimmed = Trimmed(world, monkeypatch)
    async with world.open() as worker:
        await worker.app()
        await attached(worker)
        await world.clock.sleep(2 * DAY_S)
    assert trimmed.calls == []
