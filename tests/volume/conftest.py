"""The tests of this folder run in virtual time, on a worker that is whole, and most on a shelf in it."""

from pathlib import Path

import pytest

from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.simulated_worker import anyio_backend, worker
from tests.volume.shelf import Shelf

__all__ = ["anyio_backend", "shelf", "stall", "worker"]

LOOKS_EVERY_S = 300.0
"""A worker that looks every minute takes a second of a core for each of the days that pass here."""


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path, reconcile_every_s=LOOKS_EVERY_S)


@pytest.fixture
def shelf(stall: MemoryWorld, worker: SimWorker) -> Shelf:
    return Shelf(stall, worker)
