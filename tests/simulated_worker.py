"""The fixtures of tests that run in virtual time on a worker that is whole: a `conftest.py` imports them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time

__all__ = ["anyio_backend", "stall", "worker"]

anyio_backend = in_virtual_time


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    """A host and a store in memory, which outlive the daemon."""
    return MemoryWorld(tmp_path)


@pytest.fixture
async def worker(stall: MemoryWorld) -> AsyncIterator[SimWorker]:
    """One life of the daemon over `stall`, with the app `stall`."""
    async with stall.open() as worker:
        await worker.app()
        yield worker
