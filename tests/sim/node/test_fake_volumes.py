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
    crash_points = CrashPoints()
    volumes = FakeVolumes(crash_points)
    crash_points.burns_at = crash_points.edges + 1
    with pytest.raises(Death):
        await volumes.make(disk())
    assert volumes.files == {}
    crash_points.burns_at = crash_points.edges + 2
    with pytest.raises(Death):
        await volumes.make(disk())
    assert list(volumes.files) == [VOLUME]


async def test_a_trouble_comes_before_or_after_the_effect() -> None:
    volumes = FakeVolumes(CrashPoints())
    volumes.troubles = [ScriptedFailure("make", after=False), ScriptedFailure("make", after=True)]
    for there in ([], [VOLUME]):
        with pytest.raises(OSError, match="make failed"):
            await volumes.make(disk())
        assert list(volumes.files) == there
    await volumes.make(disk())
    assert volumes.made[VOLUME] == 1


async def test_a_host_that_cannot_grow_what_is_in_use_waits_for_the_next_mount() -> None:
    volumes = FakeVolumes(CrashPoints())
    volumes.grows = False
    await volumes.make(disk(1))
    await volumes.mount(disk(1))
    assert not await volumes.grow(disk(2)) and volumes.files[VOLUME].filesystem_bytes == 1 << 30
    await volumes.unmount(VOLUME)
    await volumes.mount(disk(2))
    assert volumes.files[VOLUME].filesystem_bytes == 2 << 30


async def test_a_reboot_loses_mounts_and_no_file(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    stall.reboot()
    assert stall.disks.attached == set() and volume.id in stall.disks.files
