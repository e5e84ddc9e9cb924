"""Each planted bug is found by an invariant that it breaks, at the seed that is noted for it."""

import pytest

from hawker.proof.violation import Violation
from hawker.sim.fleet.cluster import SOUND_FLEET, FleetKit
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.planted import PLANTS
from hawker.sim.fleet.simulation import play
from hawker.sim.harness.planted_bug import PlantedBug, kit_of
from tests.short_form import short_form

SEEDS = 60
FOUND_AT = {"alone": 58, "forgets-cancels": 11, "heedless": 4, "lazy": 2, "no-cancel": 8}
"""The seed that finds a bug, where it is not the first one."""


SHORT = {"forgets-claims", "heedless", "no-admission", "skipped-version"}
PLANTED = short_form(PLANTS, lambda bug: bug.name in SHORT, "seconds a bug; four of them are the short form")


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.name for bug in PLANTS])
def test_planted_bug_of_fleet_is_found_at_noted_seed(bug: PlantedBug[FleetKit]) -> None:
    noted = FOUND_AT.get(bug.name, 1)
    found = found_in(noted, bug)
    if not bug.breaks & {each.invariant for each in found}:
        pytest.fail(f"seed {noted} does not find {bug.name} any more, and found {found}; {where_else(bug)}")


def found_in(seed: int, bug: PlantedBug[FleetKit]) -> tuple[Violation, ...]:
    return play(draw(seed), bug.kit).found


def where_else(bug: PlantedBug[FleetKit]) -> str:
    """What to note instead, or that the simulator is blind to the bug."""
    for seed in range(1, SEEDS + 1):
        if bug.breaks & {each.invariant for each in found_in(seed, bug)}:
            return f"seed {seed} does: note it in FOUND_AT"
    return f"no other of {SEEDS} seeds does"


def test_kit_of_planted_bug_is_found_by_its_name() -> None:
    assert kit_of(PLANTS, "no-cancel", SOUND_FLEET) is PLANTS[0].kit
    assert kit_of(PLANTS, None, SOUND_FLEET) is SOUND_FLEET
