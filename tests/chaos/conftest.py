"""Chaos is tested on a whole worker in virtual time where no process is needed."""

from pathlib import Path

import pytest

from hawker.sim.node.world import Stall


@pytest.fixture
def stall(tmp_path: Path) -> Stall:
    return Stall(tmp_path)
