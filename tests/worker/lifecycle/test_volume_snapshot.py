"""Facts about the flow that takes a snapshot: whatever happens to the daemon, it is of one moment, whole, or failed."""

import pytest

from hawker.ids import SnapshotId, VolumeId
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.world import MemoryWorld
from hawker.worker.volumes.records import GONE_SNAPSHOTS, SNAPSHOTS, SnapshotRecord, SnapshotStatus
from tests.worker.volumes.shelf import Shelf

pytestmark = pytest.mark.anyio


async def _volume(stall: MemoryWorld) -> VolumeId:
    async with stall.open() as worker:
        await worker.app()
        return await Shelf(stall, worker).written()


def _records(stall: MemoryWorld) -> list[SnapshotRecord]:
    return [record for _, record in stall.store.scan(SNAPSHOTS)]


@pytest.mark.parametrize("edge", range(1, 8))
async def test_a_daemon_killed_in_it_goes_on_and_takes_it_once(stall: MemoryWorld, edge: int) -> None:
    volume_id = await _volume(stall)
    try:
        async with stall.open() as worker:
            stall.crash_points.burns_at = stall.crash_points.edges + edge
            await Shelf(stall, worker).snapshot(volume_id)
            await worker.at_rest()
    except Death:
        stall.crash()
    stall.crash_points.burns_at = None
    async with stall.open() as worker:
        await worker.at_rest()
        [record] = _records(stall)
        assert (record.status, record.size > 0) == (SnapshotStatus.CREATED, True)
        assert stall.copies.snapshots[record.id].content == 1
        assert stall.copies.taken[record.id] == 1


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("volume_snapshot.begin before", SnapshotStatus.WAITING),
        ("volume_snapshot.copy before", SnapshotStatus.RUNNING),
        ("volume_snapshot.seal before", SnapshotStatus.RUNNING),
    ],
)
async def test_its_status_says_how_far_it_is(stall: MemoryWorld, place: str, status: SnapshotStatus) -> None:
    volume_id = await _volume(stall)
    stall.crash_points.burns_in = place
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).snapshot(volume_id)
            await worker.at_rest()
    assert [record.status for record in _records(stall)] == [status]


async def test_a_host_that_refuses_for_a_while_delays_it(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await shelf.written()
        stall.copies.troubles += [ScriptedFailure("take", False), ScriptedFailure("take", True)]
        snapshot_id = await shelf.taken(volume_id)
        assert stall.copies.taken[snapshot_id] == 1


async def test_a_host_that_goes_on_refusing_fails_it_and_leaves_nothing(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await shelf.written()
        stall.copies.troubles += [ScriptedFailure("take", True)] * 5
        snapshot_id = SnapshotId(await shelf.snapshot(volume_id))
        await worker.at_rest()
        assert shelf.record(snapshot_id).status is SnapshotStatus.FAILED
        await stall.clock.sleep(120)
        assert stall.copies.snapshots == {} and stall.store.count(GONE_SNAPSHOTS) == 0
        assert (await shelf.taken(volume_id)) in stall.copies.snapshots


async def test_it_waits_for_what_is_done_to_the_volume_before(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        first = await shelf.taken(await shelf.written(size_gb=1))
        assert shelf.record(first).volume_gb == 1
