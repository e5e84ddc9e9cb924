"""What is proven is played in virtual time, too."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path)


@pytest.fixture
async def worker(stall: MemoryWorld) -> AsyncIterator[SimWorker]:
    async with stall.open() as worker:
        await worker.app()
        yield worker
