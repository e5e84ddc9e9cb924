"""Each planted bug is found, at the seed that is noted for it."""

import pytest

from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.moves.move_bugs import PLANTS
from hawker.sim.moves.move_plan import draw
from hawker.sim.moves.move_run import play
from hawker.sim.node.kit import WorkerKit
from tests.short_form import short_form

SEEDS = 40
FOUND_AT = {
    "refusal-forgotten": 35,
    "copy-not-synced": 16,
    "old-marks": 21,
    "accept-not-durable": 12,
    "accepts-again": 130,
    "turn-not-durable": 84,
    "root-left": 4,
    "zeros-unsaid": 23,
    "restarts-granted": 3,
    "settles-early": 47,
    "reclaim-alive": 99,
    "reclaim-unfenced": 67,
    "reclaim-same-generation": 3,
    "memory-left": 13,
    "memory-awake": 13,
    "grant-not-durable": 67,
    "stays-down": 14,
    "snapshot-abandoned": 7,
}
"""The seed that finds a bug, where it is not the first one."""


SHORT = {"accepts-again", "closed-early", "copy-not-synced", "grant-not-durable", "starts-ungranted"}
PLANTED = short_form(PLANTS, lambda bug: bug.name in SHORT, "seconds a bug; five of grants and copies stay")


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.name for bug in PLANTS])
def test_planted_bug_of_moves_is_found_at_noted_seed(bug: PlantedBug[WorkerKit]) -> None:
    noted = FOUND_AT.get(bug.name, 1)
    found = play(draw(noted), bug.kit).found
    if not bug.breaks & {each.invariant for each in found}:
        pytest.fail(f"seed {noted} does not find {bug.name} any more, and found {found}; {where_else(bug)}")


def where_else(bug: PlantedBug[WorkerKit]) -> str:
    for seed in range(1, SEEDS + 1):
        if bug.breaks & {each.invariant for each in play(draw(seed), bug.kit).found}:
            return f"seed {seed} does: note it in FOUND_AT"
    return f"no other of {SEEDS} seeds does"
