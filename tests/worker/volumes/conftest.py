"""A shelf in an open stall."""

import pytest

from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.volumes.shelf import Shelf


@pytest.fixture
def shelf(stall: MemoryWorld, worker: SimWorker) -> Shelf:
    return Shelf(stall, worker)
