"""Facts about played copies: they are of one moment, and the middle of one leaves nothing."""

import pytest

from hawker.errors import NotFound
from hawker.ids import SnapshotId, VolumeId
from hawker.sim.node.crash_points import CrashPoints, Death
from hawker.sim.node.fake_volumes import FakeCopies, FakeVolumes
from hawker.worker.volumes.disks import Disk
from hawker.worker.volumes.records import Fstype

pytestmark = pytest.mark.anyio
VOLUME, SNAPSHOT = VolumeId("vol_0000000000000001"), SnapshotId("vs_0000000000000001")


@pytest.fixture
def fuse() -> CrashPoints:
    return CrashPoints()


@pytest.fixture
async def crates(fuse: CrashPoints) -> FakeVolumes:
    crates = FakeVolumes(fuse)
    await crates.make(Disk(id=VOLUME, size_bytes=1 << 30, fstype=Fstype.EXT4, encrypted=False))
    return crates


async def test_a_copy_stays_as_the_volume_was(fuse: CrashPoints, crates: FakeVolumes) -> None:
    prints, fork = FakeCopies(fuse, crates), VolumeId("vol_0000000000000002")
    for content in (0, 1):
        crates.files[VOLUME].content = content
        await prints.take(VOLUME, SNAPSHOT)
        await prints.fork(VOLUME, fork)
    assert prints.snapshots[SNAPSHOT].content == crates.files[fork].content == 0
    assert (prints.taken[SNAPSHOT], crates.made[fork]) == (1, 1)
    assert await prints.list() == [SNAPSHOT]


async def test_a_death_before_the_copy_is_whole_leaves_nothing(fuse: CrashPoints, crates: FakeVolumes) -> None:
    prints = FakeCopies(fuse, crates)
    for edge in (1, 2):
        fuse.burns_at = fuse.edges + edge
        with pytest.raises(Death):
            await prints.take(VOLUME, SNAPSHOT)
        assert prints.snapshots == {}
    fuse.burns_at = fuse.edges + 3
    with pytest.raises(Death):
        await prints.take(VOLUME, SNAPSHOT)
    assert list(prints.snapshots) == [SNAPSHOT]


async def test_what_is_not_there_is_not_found(fuse: CrashPoints, crates: FakeVolumes) -> None:
    prints, nothing = FakeCopies(fuse, crates), VolumeId("vol_0000000000000009")
    with pytest.raises(NotFound):
        await prints.take(nothing, SNAPSHOT)
    with pytest.raises(NotFound):
        await prints.restore(SNAPSHOT, nothing)
    await prints.drop(SNAPSHOT)
    assert (await prints.room(nothing)).needed_bytes == 0
