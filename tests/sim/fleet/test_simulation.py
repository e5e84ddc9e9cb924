"""Whole runs of fleets: nothing is found in sound ones, and a seed repeats a run."""

import os
import subprocess
import sys

import pytest

from hawker.node import Capacity
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.cluster import SOUND_FLEET, FleetKit
from hawker.sim.fleet.plan import FleetOperation, FleetPlan, FleetVerb, draw
from hawker.sim.fleet.planted import PLANTS
from hawker.sim.fleet.simulation import FleetOutcome, play, shortest, shrink
from hawker.sim.harness.plan import NATURE
from hawker.sim.harness.planted_bug import kit_of
from hawker.sim.node.kit import WorkerKit
from hawker.worker.supervisor import Supervisor
from tests.short_form import short_form

_PLAY = "import sys; from hawker.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "seed", short_form([3, 4, 6, 13], lambda seed: False, "`make check` plays ten seeds of fleets")
)
def test_nothing_is_found_in_a_sound_fleet(seed: int) -> None:
    outcome = play(draw(seed))
    assert outcome.found == () and outcome.filled > 3 and outcome.kills > 0


def test_a_seed_repeats_a_run() -> None:
    assert play(draw(3, 0.3)).lines == play(draw(3, 0.3)).lines


def traced(hash_seed: str) -> bytes:
    """The whole trace of one seed, from a process of its own, without the line that says how fast it was."""
    words = ["sim", "fleet", "--seeds", "11-11", "--minutes", "0.5", "--trace"]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PLAY, *words]
    said = subprocess.run(command, capture_output=True, env=environ, timeout=300, check=True).stdout
    return said.rstrip(b"\n").rpartition(b"\n")[0]


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first = traced("1")
    assert first == traced("3") and first.count(b"\n") > 100


def test_error_that_breaks_a_node_is_a_finding() -> None:
    class Broken(Supervisor):
        async def serve(self, **given: object) -> None:
            raise RuntimeError("planted")

    outcome = play(draw(3, 0.1), FleetKit(worker=WorkerKit(supervisor=Broken)))
    assert [each.invariant for each in outcome.found] == [Invariant.ANSWERS]


KEPT = Violation(Invariant.KEPT, "m", "gone")


def outcome(plan: FleetPlan, *found: Violation) -> FleetOutcome:
    return FleetOutcome(
        plan=plan,
        operations=0,
        filled=0,
        calls=0,
        blows=0,
        kills=0,
        takeovers=0,
        ended_at=1e9,
        digest="",
        lines=(),
        found=found,
    )


def plan_of(count: int, nodes: int) -> FleetPlan:
    operations = tuple(
        FleetOperation(number, number, NATURE, FleetVerb.KILL, nodes=(number % nodes,))
        for number in range(1, count + 1)
    )
    return FleetPlan(1, operations, nodes=nodes, regions=2, room=Capacity(cpus=1, memory_mib=1, disk_mib=1))


def shrunk(nodes_needed: int, *needed: int, tries: int = 100) -> tuple[FleetPlan, int]:
    """Of a run that breaks among so many nodes when all of these operations are there; how many runs it took."""
    runs = 0

    def again(plan: FleetPlan) -> FleetOutcome:
        nonlocal runs
        runs += 1
        there = {operation.number for operation in plan.operations}
        return outcome(plan, *((KEPT,) if plan.nodes >= nodes_needed and there >= {*needed} else ()))

    found = shortest(outcome(plan_of(30, 12), KEPT), again, tries)
    return found.plan, runs


def test_only_what_is_needed_is_left_among_as_few_nodes_as_will_do() -> None:
    plan, _ = shrunk(5, 3, 17)
    assert [operation.number for operation in plan.operations] == [3, 17]
    assert (plan.nodes, plan.regions) == (5, 1) and [operation.nodes for operation in plan.operations] == [(3,), (0,)]


def test_the_fleet_stays_as_large_as_it_must_be() -> None:
    assert shrunk(12, 3)[0].nodes == 12


def test_runs_are_bounded() -> None:
    plan, runs = shrunk(3, 3, 17, tries=6)
    assert runs == 6 and {operation.number for operation in plan.operations} >= {3, 17}


@pytest.mark.long(reason="the command's shortest story, in tests/sim/commands/test_fleet.py, is the short form")
def test_a_planted_bug_gives_a_short_story_that_shows_it_again() -> None:
    kit = kit_of(PLANTS, "no-cancel", SOUND_FLEET)
    found = play(draw(1, 0.2), kit)
    assert found.found
    story = shrink(found, kit, tries=8)
    assert 2 * len(story.plan.operations) < len(found.plan.operations)
    assert play(story.plan, kit).digest == story.digest
