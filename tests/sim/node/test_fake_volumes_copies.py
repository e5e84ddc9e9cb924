"""Facts about played copies: they are of one moment, and the middle of one leaves nothing."""

import pytest

from hawker.errors import NotFound
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import Fstype
from hawker.sim.node.crash_points import CrashPoints, Death
from hawker.sim.node.fake_volumes import FakeCopies, FakeVolumes
from hawker.volume.disks import Disk

pytestmark = pytest.mark.anyio
VOLUME, SNAPSHOT = VolumeId("vol_0000000000000001"), SnapshotId("vs_0000000000000001")


@pytest.fixture
def crash_points() -> CrashPoints:
    return CrashPoints()


@pytest.fixture
async def volumes(crash_points: CrashPoints) -> FakeVolumes:
    volumes = FakeVolumes(crash_points)
    await volumes.make(Disk(id=VOLUME, size_bytes=1 << 30, fstype=Fstype.EXT4, encrypted=False))
    return volumes


async def test_a_copy_stays_as_the_volume_was(crash_points: CrashPoints, volumes: FakeVolumes) -> None:
    copies, fork = FakeCopies(crash_points, volumes), VolumeId("vol_0000000000000002")
    for content in (0, 1):
        volumes.files[VOLUME].content = content
        await copies.take(VOLUME, SNAPSHOT)
        await copies.fork(VOLUME, fork)
    assert copies.snapshots[SNAPSHOT].content == volumes.files[fork].content == 0
    assert (copies.taken[SNAPSHOT], volumes.made[fork]) == (1, 1)
    assert await copies.list() == [SNAPSHOT]


async def test_a_death_before_the_copy_is_whole_leaves_nothing(crash_points: CrashPoints, volumes: FakeVolumes) -> None:
    copies = FakeCopies(crash_points, volumes)
    for edge in (1, 2):
        crash_points.burns_at = crash_points.edges + edge
        with pytest.raises(Death):
            await copies.take(VOLUME, SNAPSHOT)
        assert copies.snapshots == {}
    crash_points.burns_at = crash_points.edges + 3
    with pytest.raises(Death):
        await copies.take(VOLUME, SNAPSHOT)
    assert list(copies.snapshots) == [SNAPSHOT]


async def test_volume_that_is_not_there_is_not_found(crash_points: CrashPoints, volumes: FakeVolumes) -> None:
    copies, nothing = FakeCopies(crash_points, volumes), VolumeId("vol_0000000000000009")
    with pytest.raises(NotFound):
        await copies.take(nothing, SNAPSHOT)
    with pytest.raises(NotFound):
        await copies.restore(SNAPSHOT, nothing)
    await copies.drop(SNAPSHOT)
    assert (await copies.room(nothing)).needed_bytes == 0
