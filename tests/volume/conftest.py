"""The tests of this folder run in virtual time, on a worker that is whole, and most on a shelf in it."""

import pytest

from hawker.sim.life import Worker
from hawker.sim.world import Stall
from tests.fixtures.virtual_worker import anyio_backend, stall, worker
from tests.volume.shelf import Shelf

__all__ = ["anyio_backend", "shelf", "stall", "worker"]


@pytest.fixture
def shelf(stall: Stall, worker: Worker) -> Shelf:
    return Shelf(stall, worker)
