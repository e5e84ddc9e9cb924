"""Runs of edges in virtual time: the same in every process, with every kind of blow, and nothing found."""

import pytest

from hawker.sim.edge.edge_bugs import PLANTS
from hawker.sim.edge.edge_plan import draw
from hawker.sim.edge.edge_run import play, shrink


def test_the_same_seed_is_the_same_run_and_finds_nothing() -> None:
    first, second = play(draw(4)), play(draw(4))
    assert first.digest == second.digest and first.lines == second.lines
    assert first.found == () and first.served > first.refused + first.cut


@pytest.mark.long(reason="`make check` plays some seeds of each simulator")
def test_some_seeds_keep_every_promise() -> None:
    outcomes = [play(draw(seed)) for seed in (1, 2)]
    assert [outcome.found for outcome in outcomes] == [()] * 2
    assert all(outcome.wakes and outcome.served for outcome in outcomes)


@pytest.mark.timeout(3600)  # seconds a seed; more on a busy host
@pytest.mark.long(reason="`make check` plays some seeds of each simulator")
def test_many_seeds_keep_every_promise() -> None:
    assert [seed for seed in range(3, 60) if play(draw(seed)).found] == []


def test_a_finding_is_told_by_fewer_operations() -> None:
    parts = next(plant.kit for plant in PLANTS if plant.name == "client-believed")
    found = play(draw(1), parts)
    shortest = shrink(found, parts, 12)
    assert shortest.found and len(shortest.plan.operations) < len(found.plan.operations)
