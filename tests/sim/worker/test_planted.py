"""Every bug of the list is found within a bounded number of seeds, by what it breaks; without one nothing is found."""

import pytest

from hawker.sim.harness.planted_bug import PlantedBug, kit_of
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.sim.worker.plan import draw
from hawker.sim.worker.planted import PLANTS
from hawker.sim.worker.simulation import play

SEEDS = 60
SOON = ("no-fsync", "two-commits", "no-undo")
LONG = pytest.mark.long(
    reason="a bug may take dozens of seeds to be found; those that are found soon are the short form"
)
MORE = pytest.mark.long(reason="more seeds than the first twenty, which are in `make check`")


def test_the_list_is_long_and_names_are_told_apart() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 20
    assert kit_of(PLANTS, "no-fsync", SOUND) is PLANTS[0].kit and kit_of(PLANTS, None, SOUND) is SOUND


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [pytest.param(plant, id=plant.name, marks=[] if plant.name in SOON else LONG) for plant in PLANTS]
)
def test_a_planted_bug_is_found(plant: PlantedBug[WorkerKit]) -> None:
    for seed in range(1, SEEDS + 1):
        found = play(draw(seed), plant.kit).found
        if found:
            assert found[0].invariant in plant.breaks, found[0]
            return
    pytest.fail(f"{plant.name} was not found in {SEEDS} seeds")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, *(pytest.param(seed, marks=MORE) for seed in range(22, 61))])
def test_without_one_nothing_is_found(seed: int) -> None:
    """The first twenty are in `make check`."""
    assert play(draw(seed)).found == ()
