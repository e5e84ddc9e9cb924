"""Fleets with the fake of the worker: sound, the same every time, and found out when a part of them is wrong."""

import pytest

from hawker.proof.violation import Invariant
from hawker.sim.fleet.operation import BROKERS
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.planted import find
from hawker.sim.fleet.simulation import play


@pytest.mark.parametrize("seed", [1, 3])
def test_nothing_is_found_in_a_sound_fleet_and_a_seed_repeats_it(seed: int) -> None:
    outcome = play(draw(seed, 0.3, 5, light=True))
    assert outcome.found == () and outcome.filled > 2 and outcome.kills > 0
    assert play(draw(seed, 0.3, 5, light=True)).digest == outcome.digest


def test_a_large_one_has_more_clients_and_brokers_at_its_first_nodes() -> None:
    plan = draw(1, 0.2, 100, light=True)
    assert len(plan.clients) == 4 and plan.regions == 1
    assert {number for deed in plan.deeds if deed.label for number in deed.nodes} <= set(range(BROKERS))


def test_a_planted_bug_is_found() -> None:
    for seed in range(2, 12):
        found = play(draw(seed, 0.6, 5, light=True), find("no-cancel")).found
        if Invariant.FILLED_ONCE in {each.invariant for each in found}:
            return
    pytest.fail("it was not found in ten seeds")
