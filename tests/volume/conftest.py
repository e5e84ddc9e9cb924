"""The tests of this folder run in virtual time, on a worker that is whole, and most on a shelf in it."""

import pytest

from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.simulated_worker import anyio_backend, stall, worker
from tests.volume.shelf import Shelf

__all__ = ["anyio_backend", "shelf", "stall", "worker"]


@pytest.fixture
def shelf(stall: MemoryWorld, worker: SimWorker) -> Shelf:
    return Shelf(stall, worker)
