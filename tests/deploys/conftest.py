"""The tests of this folder run in virtual time, on a worker that is whole. After each of them what holds of deploys
must hold.
"""

from collections.abc import AsyncIterator

import pytest

from hawker.proof.deploy_checks import deploys_at_rest, of_deploys
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.simulated_worker import anyio_backend, stall

__all__ = ["anyio_backend", "stall"]


@pytest.fixture
async def worker(stall: MemoryWorld) -> AsyncIterator[SimWorker]:
    """One life of the daemon over `stall`, with the app `stall`."""
    async with stall.open() as worker:
        await worker.app()
        yield worker
        assert [*of_deploys(worker.store), *deploys_at_rest(worker.store)] == []
