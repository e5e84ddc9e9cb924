"""A shelf in an open stall."""

import pytest

from hawker.sim.node.sim_worker import Worker
from hawker.sim.node.world import Stall
from tests.worker.volumes.shelf import Shelf


@pytest.fixture
def shelf(stall: Stall, worker: Worker) -> Shelf:
    return Shelf(stall, worker)
