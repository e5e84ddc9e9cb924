"""Planted holes: each is where its wall is. That a scene finds each is in `tests/chaos/test_hostile.py`."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hawker.chaos.hostile.planted import HOLES, PlantedHole, before_it


@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.name)
def test_hole_has_its_wall(hole: PlantedHole) -> None:
    assert hasattr(hole.owner, hole.attribute)


def test_hole_whose_wall_has_another_name_is_not_planted() -> None:
    hole = PlantedHole("old", "a wall was renamed", "none", SimpleNamespace(wall=1), "_wall", 2)
    with pytest.raises(AttributeError, match="_wall"):
        hole.plant()


def test_node_with_every_hole_begins() -> None:
    hawker = str(Path(sys.executable).with_name("hawker"))
    command = (*before_it([hole.name for hole in HOLES]), hawker, "--version")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("hawker"), done.stderr
