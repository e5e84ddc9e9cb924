import pytest

from bench.schedulers.planted import PLANTS, ROUGH, Plant, find
from tests.bench.schedulers.pieces import played

_SEEDS = 5


@pytest.mark.parametrize("plant", PLANTS, ids=[plant.name for plant in PLANTS])
def test_each_planted_bug_is_found_by_the_promise_that_it_breaks(plant: Plant) -> None:
    for seed in range(1, _SEEDS + 1):
        report = played("market", hosts=10, count=1000, seed=seed, costs=ROUGH, kit=plant.kit)
        if report.breaches:
            assert report.breaches[0].promise is plant.breaks
            return
    pytest.fail(f"{plant.name} was not found in {_SEEDS} seeds")


@pytest.mark.parametrize("policy", ["polling", "first-fit", "spread", "optimistic", "market"])
def test_in_the_same_rough_weather_a_sound_fleet_keeps_its_promises(policy: str) -> None:
    for seed in (1, 2, 3):
        assert played(policy, hosts=10, count=1000, seed=seed, costs=ROUGH).breaches == ()


def test_a_plant_is_found_by_its_name() -> None:
    assert find(PLANTS[0].name) is PLANTS[0] and find("none") is None
