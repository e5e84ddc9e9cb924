"""Each planted bug of edges is found, at the seed that is noted for it."""

import pytest

from hawker.sim.edge.datagram_bugs import DATAGRAM_PLANTS
from hawker.sim.edge.edge_bugs import PLANTS
from hawker.sim.edge.edge_plan import draw
from hawker.sim.edge.edge_run import play
from hawker.sim.edge.played_host import EdgeKit
from hawker.sim.harness.planted_bug import PlantedBug
from tests.short_form import short_form

SEEDS = 40
"""Within so many each is to be found."""
FOUND_AT = {
    "admits-while-closing": 19,
    "wakes-once": 8,
    "refusal-forgotten": 6,
    "holds-for-ever": 6,
    "waits-for-the-lost": 3,
    "wakes-at-once": 5,
    "least-anywhere": 5,
    "found-by-name": 13,
    "never-returns": 2,
    "least-ignored": 5,
    "repeats-all": 3,
    "two-gates": 2,
    "own-choice": 8,
    "region-falls-back": 14,
    "repeats-afar": 23,
    "asks-anew": 40,
    "regions-forgotten": 30,
    "start-believed": 11,
    "goes-round": 6,
    "found-inside": 4,
    "network-unasked": 12,
}
"""The seed that finds a bug, where it is not the first one."""


SHORT = {"never-restores", "wakes-at-once", "holds-for-ever", "repeats-all"}
OWN = [bug for bug in PLANTS if bug not in DATAGRAM_PLANTS]
PLANTED = short_form(OWN, lambda bug: bug.name in SHORT, "a bug like the other; four of them are the short form")


def test_noted_seeds_are_among_the_first() -> None:
    assert max(FOUND_AT.values()) <= SEEDS


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.name for bug in OWN])
def test_planted_bug_of_edges_is_found_at_noted_seed(bug: PlantedBug[EdgeKit]) -> None:
    noted = FOUND_AT.get(bug.name, 1)
    found = play(draw(noted), bug.kit).found
    if not bug.breaks & {each.invariant for each in found}:
        pytest.fail(f"seed {noted} does not find {bug.name} any more, and found {found}; {where_else(bug)}")


def where_else(bug: PlantedBug[EdgeKit]) -> str:
    for seed in range(1, SEEDS + 1):
        if bug.breaks & {each.invariant for each in play(draw(seed), bug.kit).found}:
            return f"seed {seed} does: note it in FOUND_AT"
    return f"no other of {SEEDS} seeds does"
