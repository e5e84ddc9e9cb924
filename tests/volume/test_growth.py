"""When a volume grows by itself, by how much, and what keeps it from that."""

import msgspec
import pytest

from hawker.config.machine import Mount
from hawker.ids import AppName, VolumeId
from hawker.node import Capacity
from hawker.record.volume import VOLUMES, VolumeRecord, VolumeState
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.volume.disks import Disk, Usage
from hawker.volume.growth import Growth, larger_size

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
def test_it_grows_from_its_threshold_on(percent: int, size_gb: int | None) -> None:
    assert larger_size(VOLUME, MOUNT, used(percent), 500) == size_gb


def test_it_grows_up_to_its_limit_and_the_node_s() -> None:
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
