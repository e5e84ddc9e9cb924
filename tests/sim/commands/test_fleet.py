import json

import pytest

from hawker.cli.main import main
from hawker.sim.fleet.planted import PLANTS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", "fleet", *words])
    return status, capsys.readouterr().out.splitlines()


def test_a_sound_fleet_ends_well_and_the_rate_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "3-3", "--minutes", "0.2")
    assert status == 0 and lines[0].startswith("seed 3: 3 nodes") and lines[1].startswith("1 seeds, ")


def test_a_planted_bug_ends_with_1_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--seeds", "1-1", "--minutes", "0.2", "--plant", "skipped-version")
    status, lines = said(capsys, *words, "--tries", "0")
    assert status == 1 and lines[0].endswith("FOUND") and "every replica converges" in lines[1]


def test_the_shortest_story_is_told_with_the_command_that_plays_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "1-1", "--minutes", "0.2", "--plant", "no-cancel", "--tries", "2")
    begins = next(line for line in lines if line.startswith("The shortest story of seed 1, "))
    assert status == 1 and lines.index(begins) < len(lines) - 2
    again = lines[-1].removeprefix("Again: hawker sim fleet ").split()
    assert said(capsys, *again, "--tries", "0")[0] == 1


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plants")
    assert status == 0 and [line.split()[0] for line in lines] == [plant.name for plant in PLANTS]


def test_programs_get_an_object_and_people_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "3-3", "--minutes", "0.2", "--json")
    assert status == 0 and json.loads(lines[0])["seed"] == 3
    status, traced = said(capsys, "--seeds", "3-3", "--minutes", "0.2", "--trace")
    assert status == 0 and len(traced) > len(lines) + 10
