"""What the played volumes add to the contract that tests/contract holds them to: edges, troubles, a memory."""

import pytest

from hawker.sim.node.crash_points import CrashPoints, Death
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.fake_volumes import FakeVolumes
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.contract.disks import VOLUME, disk

pytestmark = pytest.mark.anyio


async def test_each_call_has_edges_before_and_after_its_effect() -> None:
    fuse = CrashPoints()
    crates = FakeVolumes(fuse)
    fuse.burns_at = fuse.edges + 1
    with pytest.raises(Death):
        await crates.make(disk())
    assert crates.files == {}
    fuse.burns_at = fuse.edges + 2
    with pytest.raises(Death):
        await crates.make(disk())
    assert list(crates.files) == [VOLUME]


async def test_a_trouble_comes_before_or_after_the_effect() -> None:
    crates = FakeVolumes(CrashPoints())
    crates.troubles = [ScriptedFailure("make", after=False), ScriptedFailure("make", after=True)]
    for there in ([], [VOLUME]):
        with pytest.raises(OSError, match="make failed"):
            await crates.make(disk())
        assert list(crates.files) == there
    await crates.make(disk())
    assert crates.made[VOLUME] == 1


async def test_a_host_that_cannot_grow_what_is_in_use_waits_for_the_next_mount() -> None:
    crates = FakeVolumes(CrashPoints())
    crates.grows = False
    await crates.make(disk(1))
    await crates.mount(disk(1))
    assert not await crates.grow(disk(2)) and crates.files[VOLUME].filesystem_bytes == 1 << 30
    await crates.unmount(VOLUME)
    await crates.mount(disk(2))
    assert crates.files[VOLUME].filesystem_bytes == 2 << 30


async def test_a_reboot_loses_mounts_and_no_file(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    stall.reboot()
    assert stall.disks.attached == set() and volume.id in stall.disks.files
