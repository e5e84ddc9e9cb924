"""Each planted bug is found, at the seed that is noted for it."""

import pytest

from hawker.sim.deploys.deploy_bugs import PLANTS
from hawker.sim.deploys.deploy_host import DeployKit
from hawker.sim.deploys.deploy_plan import draw
from hawker.sim.deploys.deploy_run import play
from hawker.sim.harness.planted_bug import PlantedBug

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long(reason="five seconds a bug; test_deploy_run finds one, and `make check` plays sound seeds"),
]
SEEDS = 40
FOUND_AT = {
    "checks-believed": 3,
    "deaf-to-pauses": 2,
    "new-keys": 18,
    "no-budget": 2,
    "no-fence": 4,
    "one-budget": 29,
    "overwrites-any": 37,
    "starts-wait": 3,
    "term-forgotten": 13,
}
"""The seed that finds a bug, where it is not the first one."""


@pytest.mark.parametrize("bug", PLANTS, ids=[bug.name for bug in PLANTS])
def test_planted_bug_of_deploys_is_found_at_noted_seed(bug: PlantedBug[DeployKit]) -> None:
    noted = FOUND_AT.get(bug.name, 1)
    found = play(draw(noted), bug.kit).found
    if not bug.breaks & {each.invariant for each in found}:
        pytest.fail(f"seed {noted} does not find {bug.name} any more, and found {found}; {where_else(bug)}")


def where_else(bug: PlantedBug[DeployKit]) -> str:
    for seed in range(1, SEEDS + 1):
        if bug.breaks & {each.invariant for each in play(draw(seed), bug.kit).found}:
            return f"seed {seed} does: note it in FOUND_AT"
    return f"no other of {SEEDS} seeds does"
