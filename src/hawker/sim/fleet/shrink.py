"""From a run of a fleet in which something was found to the shortest one that shows the same: among fewer nodes if that
will do, then without the deeds that it does not need.
"""

from collections.abc import Callable

from hawker.sim.fleet.kit import FleetKit
from hawker.sim.fleet.operation import FleetPlan
from hawker.sim.fleet.simulation import FleetOutcome, play
from hawker.sim.harness.shrink import Shrinker

TRIES = 120
_SIZES = (3, 4, 5, 7, 10, 20, 50, 100)


def shrink(found: FleetOutcome, kit: FleetKit, tries: int = TRIES) -> FleetOutcome:
    return shortest(found, lambda plan: play(plan, kit), tries)


def shortest(found: FleetOutcome, again: Callable[[FleetPlan], FleetOutcome], tries: int = TRIES) -> FleetOutcome:
    """The same for the same finding: bounded by the runs, and not by time."""
    kind = found.found[0].invariant
    for size in _SIZES:
        if size >= found.plan.nodes or not tries:
            break
        tries -= 1
        narrow = again(found.plan.within(size))
        if narrow.found and narrow.found[0].invariant is kind:
            found = narrow
            break
    plan = found.plan
    return Shrinker(found, lambda numbers: again(plan.only(frozenset(numbers))), tries).shrink()
