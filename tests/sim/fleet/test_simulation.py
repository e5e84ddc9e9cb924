"""Whole runs of fleets: nothing is found in sound ones, and a seed repeats a run."""

import os
import subprocess
import sys

import pytest

from hawker.proof.violation import Invariant
from hawker.sim.fleet.kit import FleetKit
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.simulation import play
from hawker.sim.node.kit import WorkerKit
from hawker.worker.supervisor import Supervisor

_PLAY = "import sys; from hawker.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("seed", [3, 4, 6, 13])
def test_nothing_is_found_in_a_sound_fleet(seed: int) -> None:
    outcome = play(draw(seed))
    assert outcome.found == () and outcome.filled > 3 and outcome.kills > 0


def test_a_seed_repeats_a_run() -> None:
    assert play(draw(3, 0.3)).lines == play(draw(3, 0.3)).lines


def traced(hash_seed: str) -> bytes:
    """The whole trace of one seed, from a process of its own, without the line that says how fast it was."""
    words = ["sim", "fleet", "--seeds", "11-11", "--trace"]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PLAY, *words]
    said = subprocess.run(command, capture_output=True, env=environ, timeout=300, check=True).stdout
    return said.rstrip(b"\n").rpartition(b"\n")[0]


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first = traced("1")
    assert first == traced("3") and first.count(b"\n") > 200


def test_what_breaks_a_node_is_a_finding() -> None:
    class Broken(Supervisor):
        async def serve(self, **given: object) -> None:
            raise RuntimeError("planted")

    outcome = play(draw(3, 0.1), FleetKit(worker=WorkerKit(supervisor=Broken)))
    assert [each.invariant for each in outcome.found] == [Invariant.ANSWERS]
