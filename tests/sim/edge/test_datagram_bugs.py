"""Each planted bug of datagrams is found, at the seed that is noted for it."""

import pytest

from hawker.sim.edge.datagram_bugs import DATAGRAM_PLANTS
from hawker.sim.edge.edge_plan import draw
from hawker.sim.edge.edge_run import play
from hawker.sim.edge.played_host import EdgeKit
from hawker.sim.harness.planted_bug import PlantedBug
from tests.short_form import short_form
from tests.sim.edge.test_edge_bugs import where_else

FOUND_AT = {"flows-uncounted": 9, "flows-forgotten": 9, "flow-stays": 10, "flow-never-lost": 15}
PLANTED = short_form(DATAGRAM_PLANTS, lambda bug: bug.name == "flow-never-lost", "a bug like the other; one is enough")


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.name for bug in DATAGRAM_PLANTS])
def test_planted_bug_of_datagrams_is_found_at_noted_seed(bug: PlantedBug[EdgeKit]) -> None:
    noted = FOUND_AT[bug.name]
    found = play(draw(noted), bug.kit).found
    if not bug.breaks & {each.invariant for each in found}:
        pytest.fail(f"seed {noted} does not find {bug.name} any more, and found {found}; {where_else(bug)}")
