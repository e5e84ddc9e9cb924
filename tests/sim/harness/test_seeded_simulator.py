"""What the commands of seeded simulators print, over one that finds what it is told to."""

from typing import Any

import click
import pytest

from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.plan import RunOperation, RunOutcome, RunPlan
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.harness.seeded_simulator import SeededSimulator, seeded_options
from hawker.sim.moves.move_plan import MoveVerb


class Plan(RunPlan[RunOperation[MoveVerb]], frozen=True):
    pass


class Outcome(RunOutcome[Plan], frozen=True, kw_only=True):
    pass


PLANTS = (PlantedBug(name="bad", what="it is bad", kit=True),)


def draw(seed: int) -> Plan:
    operations = tuple(RunOperation(number, 1.0, "world", MoveVerb.KILL) for number in (1, 2))
    return Plan(seed=seed, operations=operations)


def play(plan: Plan, bad: bool) -> Outcome:
    found = (Violation(Invariant.KEPT, "it", "is gone"),) if bad else ()
    return Outcome(plan=plan, operations=3, ended_at=1.0, digest="abc", lines=(), found=found)


def shrink(found: Outcome, bad: bool, tries: int) -> Outcome:
    return play(found.plan.only({2}), bad)


SIMULATOR: SeededSimulator[bool, Plan, Outcome] = SeededSimulator(
    name="things",
    plants=PLANTS,
    sound=False,
    draw=draw,
    play=play,
    shrink=shrink,
    counts=lambda outcome: {"calls": outcome.operations},
)


OPTIONS = {"plant": None, "plants": False, "only": None, "tries": 5, "trace": False, "json": False}


def said(capsys: pytest.CaptureFixture[str], *seeds: int, **options: Any) -> tuple[int, list[str]]:
    status = SIMULATOR.run(seeds, **{**OPTIONS, **options})
    return status, capsys.readouterr().out.splitlines()


def test_seeds_without_a_finding_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, 1, 2) == (0, [f"seed {seed:6}  abc  3 calls: nothing found" for seed in (1, 2)])


def test_a_finding_ends_the_run_with_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, 5, 6, plant="bad")
    assert status == 1 and lines[1] == "  acknowledged means kept: it: is gone"
    assert lines[-1] == "Again: hawker sim things --seeds 5-5 --plant bad --only 2"


@pytest.mark.parametrize("options", [{"json": True}, {"trace": True}, {"tries": 0}])
def test_no_story_is_told_to_programs_or_beside_a_trace(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = said(capsys, 1, plant="bad", **options)
    assert status == 1 and not any(line.startswith("Again") for line in lines)


def test_bugs_are_listed_with_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, plants=True) == (0, [f"{'bad':20} it is bad"])

    @seeded_options(PLANTS)
    def command(**options: Any) -> int:
        return 0

    assert {option.name for option in click.command()(command).params} == {"seeds", *OPTIONS}
