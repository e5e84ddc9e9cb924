"""Facts about the flows that fill a volume: the states they go through, and what a death in them costs."""

from contextlib import suppress

import pytest

from hawker.errors import Fault
from hawker.ids import VolumeId
from hawker.sim.harness.loop import eventually
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.world import MemoryWorld
from hawker.worker.volumes.records import VOLUMES, VolumeState
from tests.worker.volumes.shelf import Shelf

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("volume_fork.prepare before", VolumeState.CREATING),
        ("volume_fork.fill before", VolumeState.ENABLING_REMOTE_EXPORT),
        ("volume_fork.fit before", VolumeState.HYDRATING),
    ],
)
async def test_a_fork_s_state_says_what_is_being_done(stall: MemoryWorld, place: str, state: VolumeState) -> None:
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written()
    stall.crash_points.burns_in = place
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).create(name="copy", source_volume_id=source)
    assert sorted(record.state for _, record in stall.store.scan(VOLUMES)) == sorted([VolumeState.CREATED, state])


async def test_a_fork_can_be_mounted_while_it_is_brought_to_its_size(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written(size_gb=1)
    stall.crash_points.burns_in = "volume_fork.fit before"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).create(name="copy", source_volume_id=source, size_gb=2)
    stall.crash()
    async with stall.open() as worker:
        await worker.started(mounts=[{"name": "copy", "path": "/data"}])
        await worker.at_rest()
        [copy] = [record for _, record in worker.store.scan(VOLUMES) if record.name == "copy"]
        assert (copy.state, copy.made_gb) == (VolumeState.CREATED, 2)
        assert stall.disks.files[copy.id].filesystem_bytes == 2 << 30


@pytest.mark.parametrize("edge", range(1, 12))
async def test_a_daemon_killed_while_a_snapshot_is_restored_goes_on(stall: MemoryWorld, edge: int) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        snapshot_id = await shelf.taken(await shelf.written())
    await _killed(stall, edge, snapshot_id=snapshot_id)
    await _all_made(stall)


@pytest.mark.parametrize("edge", range(1, 12))
async def test_a_daemon_killed_while_a_volume_is_forked_goes_on(stall: MemoryWorld, edge: int) -> None:
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written()
    await _killed(stall, edge, source_volume_id=source)
    await _all_made(stall)


async def _killed(stall: MemoryWorld, edge: int, **order: str) -> None:
    try:
        async with stall.open() as worker:
            stall.crash_points.burns_at = stall.crash_points.edges + edge
            await Shelf(stall, worker).create(name="copy", **order)
    except Death:
        stall.crash()
    stall.crash_points.burns_at = None


async def _all_made(stall: MemoryWorld) -> None:
    """Each volume is created, with what the first one held, and was made once; nothing else is there."""
    async with stall.open() as worker:
        await worker.at_rest()
        records = [record for _, record in worker.store.scan(VOLUMES)]
        assert {record.state for record in records} == {VolumeState.CREATED}
        await eventually(stall.clock, lambda: set(stall.disks.files) == {record.id for record in records}, 600)
        assert {stall.disks.files[VolumeId(record.id)].content for record in records} == {1}
        assert {stall.disks.made[record.id] for record in records} == {1}


async def test_a_copy_that_cannot_be_had_leaves_no_volume(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        source = await shelf.written()
        stall.copies.troubles += [ScriptedFailure("fork", False)] * 5
        with suppress(Fault):  # or not yet, when it is answered before the last try
            await shelf.create(source_volume_id=source)
        await worker.at_rest()
        assert [key for key, _ in worker.store.scan(VOLUMES)] == [source]
        assert list(stall.disks.files) == [source]
