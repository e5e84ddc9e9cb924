"""Each planted bug of private networks and host names is found, at the seed that is noted for it."""

import pytest

from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.networks.network_bugs import PLANTS
from hawker.sim.networks.network_host import NetworkParts
from hawker.sim.networks.networks_plan import draw
from hawker.sim.networks.networks_run import play
from tests.short_form import short_form

SEEDS = 40
FOUND_AT = {
    "lost-named": 33,
    "way-kept": 9,
    "removed-shown": 7,
    "expired-shown": 10,
    "first-shown": 4,
    "key-told": 2,
    "key-logged": 2,
}
"""The seed that finds a bug, where it is not the first one."""


SHORT = {"another-s-answer", "expired-shown", "key-logged", "views-kept"}
PLANTED = short_form(PLANTS, lambda bug: bug.name in SHORT, "up to a second a bug; four of them are the short form")


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.name for bug in PLANTS])
def test_planted_bug_of_networks_is_found_at_noted_seed(bug: PlantedBug[NetworkParts]) -> None:
    noted = FOUND_AT.get(bug.name, 1)
    found = play(draw(noted), bug.kit).found
    if not bug.breaks & {each.invariant for each in found}:
        pytest.fail(f"seed {noted} does not find {bug.name} any more, and found {found}; {where_else(bug)}")


def where_else(bug: PlantedBug[NetworkParts]) -> str:
    for seed in range(1, SEEDS + 1):
        if bug.breaks & {each.invariant for each in play(draw(seed), bug.kit).found}:
            return f"seed {seed} does: note it in FOUND_AT"
    return f"no other of {SEEDS} seeds does"
