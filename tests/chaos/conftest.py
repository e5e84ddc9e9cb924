"""Chaos is tested on a whole worker in virtual time where no process is needed."""

from pathlib import Path

import pytest

from hawker.sim.node.world import MemoryWorld


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path)
