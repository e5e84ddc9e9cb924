"""Whole runs: nothing is found in a sound worker, a seed repeats a run byte for byte, and what breaks is said."""

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.trace import Speaker
from hawker.sim.node.kit import WorkerKit
from hawker.sim.worker.plan import WorkerVerb, draw
from hawker.sim.worker.simulation import play, repeat, report_of, summary
from hawker.worker.supervisor import Supervisor
from tests.sim.played import blow, call, order, plan

_PLAY = "import sys; from hawker.cli.main import main; sys.exit(main(sys.argv[1:]))"


def traced(seed: int, hash_seed: str) -> bytes:
    """The whole trace, from a process of its own."""
    words = ["sim", "--seed", str(seed), "--minutes", "1", "--trace"]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PLAY, *words]
    return subprocess.run(command, capture_output=True, env=environ, timeout=120, check=True).stdout


@pytest.mark.parametrize("seed", [3, 4], ids=["twin", "file"])
def test_a_seed_gives_the_same_bytes_in_every_process(seed: int) -> None:
    assert draw(seed).on_file == (seed == 4)
    first = traced(seed, "1")
    assert first == traced(seed, "4711") and first.count(b"\n") > 200


def test_two_seeds_are_two_runs() -> None:
    assert play(draw(1, 0.5)).digest != play(draw(2, 0.5)).digest


def test_a_quiet_run_is_one_life_and_a_look_at_what_is_left() -> None:
    outcome = play(plan(order(), call(WorkerVerb.STOP, 5), call(WorkerVerb.LOOK, 10)))
    assert (outcome.operations, outcome.lives, outcome.crashes, outcome.faults) == (3, 2, 0, 0)
    assert outcome.found == ()


@pytest.mark.parametrize("verb", [WorkerVerb.KILL_AT_EDGE, WorkerVerb.KILL_AT_COMMIT, WorkerVerb.KILL_AT_AWAIT])
@pytest.mark.parametrize("on_file", [False, True], ids=["twin", "file"])
@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "power cut"])
def test_a_daemon_that_is_killed_during_a_create_loses_nothing(verb: WorkerVerb, on_file: bool, reboots: bool) -> None:
    for amount in (1, 3, 6):
        blown = blow(verb, 0.99, amount, reboots=reboots, kept=0.0 if reboots else 1.0)
        outcome = play(plan(order(word="always"), blown, on_file=on_file))
        assert outcome.crashes == 1 and outcome.found == (), (amount, outcome.lines)


def test_a_client_that_is_cut_off_asks_again_for_its_order() -> None:
    outcome = play(plan(order(), blow(WorkerVerb.KILL_AT_COMMIT, 0.99, 1)))
    said = [line.text for line in outcome.lines if line.kind is Speaker.CLIENT]
    assert said[1] == "ann hears nothing of create ann-1" and said[3].startswith("ann is told: create ann-1")


def test_a_worker_that_breaks_is_a_finding() -> None:
    class Broken(Supervisor):
        async def _record_missed(self) -> None:
            raise KeyError("oops")

    outcome = play(plan(order()), WorkerKit(supervisor=Broken))
    assert [violation.invariant for violation in outcome.found] == [Invariant.ANSWERS]
    assert "KeyError" in outcome.found[0].what


def test_a_daemon_that_never_comes_up_is_a_finding() -> None:
    class Absent(Supervisor):
        async def _record_missed(self) -> None:
            raise OSError

    assert play(plan(), WorkerKit(supervisor=Absent)).found != ()


def test_a_cut_plan_is_played_in_the_same_world() -> None:
    whole = draw(6, 0.5)
    cut = whole.only(frozenset(operation.number for operation in whole.operations[:5]))
    assert play(cut).plan.operations == whole.operations[:5]
    assert play(replace(cut, operations=())).operations == 0


def test_a_report_has_everything_that_the_line_has_and_the_findings_in_words() -> None:
    outcome = replace(play(plan(order())), found=(Violation(Invariant.KEPT, "m", "is forgotten"),))
    report = report_of(outcome, "hawker sim --seed 1")
    assert (report.seed, report.operations, report.digest) == (1, 1, outcome.digest)
    assert report.found[0].invariant == "acknowledged means kept" and report.again == "hawker sim --seed 1"


def test_a_summary_is_one_line_with_the_digest() -> None:
    outcome = play(plan(order()))
    assert summary(outcome) == (
        f"seed 1: 1 operations, 0 crashes, 0 faults, 4m11s, digest {outcome.digest}, nothing found"
    )


def test_the_command_repeats_the_cut_run() -> None:
    outcome = play(plan(order(), call(WorkerVerb.STOP, 5)))
    assert repeat(outcome, 5, None, whole=True) == "hawker sim --seed 1"
    assert repeat(outcome, 2, "no-fsync", whole=False) == "hawker sim --seed 1 --minutes 2 --plant no-fsync --only 1,2"
