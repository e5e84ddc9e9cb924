"""Whole runs of fleets: nothing is found in sound ones, and a seed repeats a run."""

import pytest

from hawker.proof.violation import Invariant
from hawker.sim.fleet.kit import FleetKit
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.run import play
from hawker.sim.kit import Kit
from hawker.worker.supervisor import Supervisor


@pytest.mark.parametrize("seed", [3, 4, 6, 13])
def test_nothing_is_found_in_a_sound_fleet(seed: int) -> None:
    outcome = play(draw(seed))
    assert outcome.found == () and outcome.filled > 3 and outcome.kills > 0


def test_a_seed_repeats_a_run() -> None:
    assert play(draw(3, 0.3)).lines == play(draw(3, 0.3)).lines


def test_what_breaks_a_node_is_a_finding() -> None:
    class Broken(Supervisor):
        async def serve(self, **given: object) -> None:
            raise RuntimeError("planted")

    outcome = play(draw(3, 0.1), FleetKit(worker=Kit(supervisor=Broken)))
    assert [each.invariant for each in outcome.found] == [Invariant.ANSWERS]
