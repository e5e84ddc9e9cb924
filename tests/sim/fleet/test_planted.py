"""Each planted bug is found by an invariant that it breaks, within so many seeds. Those are tried first where each was
found last."""

import pytest

from hawker.sim.fleet.kit import SOUND_FLEET
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.planted import PLANTS, Plant, find
from hawker.sim.fleet.simulation import play

SEEDS = 40
_LAST = {"alone": 11, "forgets-cancels": 8, "heedless": 2, "lazy": 2, "no-cancel": 2}


@pytest.mark.parametrize("plant", PLANTS, ids=[plant.name for plant in PLANTS])
def test_each_planted_bug_is_found(plant: Plant) -> None:
    last = _LAST.get(plant.name, 1)
    for seed in (last, *(seed for seed in range(1, SEEDS + 1) if seed != last)):
        if plant.breaks & {found.invariant for found in play(draw(seed), plant.kit).found}:
            return
    pytest.fail(f"{plant.name} was not found in {SEEDS} seeds")


def test_a_plant_is_found_by_its_name() -> None:
    assert find("no-cancel") is PLANTS[0].kit and find(None) is SOUND_FLEET
