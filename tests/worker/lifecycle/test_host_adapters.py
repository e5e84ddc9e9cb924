"""Facts about the devices of an instance that is about to begin."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from hawker.gpu import Gpu
from hawker.machine import State
from hawker.node import Capacity
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.host_adapters import gpus_of, take_gpus

pytestmark = pytest.mark.anyio

ADDRESS = "0000:01:00.0"
ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=1000, gpus=(Gpu(kind="a10", address=ADDRESS),))


class Noted:
    def __init__(self) -> None:
        self.taken: list[str] = []

    async def take(self, addresses: Sequence[str]) -> None:
        self.taken += addresses


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[SimWorker]:
    async with MemoryWorld(tmp_path, guests=True, room=ROOM).open() as worker:
        await worker.app()
        yield worker


async def test_a_running_machine_keeps_its_devices_as_they_are(worker: SimWorker) -> None:
    """A launch that is repeated after the daemon's death must not reset them."""
    one, devices = await worker.started(guest={"gpu_kind": "a10"}), Noted()
    assert gpus_of(worker.record(one)) == (ADDRESS,)
    await take_gpus(devices, worker.parts.deps.driver, worker.record(one))
    assert devices.taken == []
    await worker.parts.deps.driver.destroy(worker.record(one).id)
    await take_gpus(devices, worker.parts.deps.driver, worker.record(one))
    assert devices.taken == [ADDRESS]


async def test_a_machine_without_devices_needs_none(worker: SimWorker) -> None:
    one = await worker.started()
    await worker.stop(one)
    record = await worker.reaches(one, State.STOPPED)
    assert gpus_of(record) == ()
    await take_gpus(None, worker.parts.deps.driver, record)
