from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.gpu import Gpu
from hawker.node import Capacity
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio

ADDRESS = "0000:01:00.0"
ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=1000, gpus=(Gpu(kind="a10", address=ADDRESS),))


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path, guests=True, room=ROOM)


@pytest.fixture
async def worker(stall: MemoryWorld) -> AsyncIterator[SimWorker]:
    async with stall.open() as worker:
        await worker.app()
        yield worker


async def test_a_device_that_is_taken_under_a_running_machine_is_torn(stall: MemoryWorld, worker: SimWorker) -> None:
    await worker.started(guest={"gpu_kind": "a10"})
    assert not stall.gpus.torn
    await stall.gpus.take([ADDRESS])
    assert stall.gpus.torn == {ADDRESS}


async def test_a_broken_device_is_refused(stall: MemoryWorld) -> None:
    stall.gpus.broken.add(ADDRESS)
    with pytest.raises(Unavailable, match="broken"):
        await stall.gpus.take([ADDRESS])


@pytest.mark.parametrize(("edge", "ready"), [(1, set()), (2, {ADDRESS})])
async def test_the_daemon_may_die_before_and_after(stall: MemoryWorld, edge: int, ready: set[str]) -> None:
    stall.crash_points.burns_at = stall.crash_points.edges + edge
    with pytest.raises(Death):
        await stall.gpus.take([ADDRESS])
    assert stall.gpus.ready == ready
