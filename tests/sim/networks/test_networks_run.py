"""Runs of private networks in virtual time: the same in every process, with all that is judged, and nothing found."""

import pytest

from hawker.sim.networks.network_bugs import PLANTS
from hawker.sim.networks.networks_plan import draw
from hawker.sim.networks.networks_run import play, shrink


def test_the_same_seed_is_the_same_run_and_finds_nothing() -> None:
    first, second = play(draw(6)), play(draw(6))
    assert first.digest == second.digest and first.lines == second.lines
    assert first.found == () and first.apps and first.answers and first.shown


@pytest.mark.long(reason="`make check` plays some seeds of each simulator")
def test_some_seeds_keep_every_promise() -> None:
    outcomes = [play(draw(seed)) for seed in range(1, 6)]
    assert [outcome.found for outcome in outcomes] == [()] * 5
    assert any(outcome.refused for outcome in outcomes), "too few keepers answered, and so no new network was made"


@pytest.mark.long(reason="`make check` plays some seeds of each simulator")
def test_many_seeds_keep_every_promise() -> None:
    assert [seed for seed in range(6, 60) if play(draw(seed)).found] == []


def test_a_finding_is_told_by_fewer_operations() -> None:
    parts = next(plant.kit for plant in PLANTS if plant.name == "sleepers-named")
    found = play(draw(1), parts)
    shortest = shrink(found, parts, 12)
    assert shortest.found and len(shortest.plan.operations) < len(found.plan.operations)
