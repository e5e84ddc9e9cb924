import pytest

from hawker.cli.main import main
from hawker.sim.edge.edge_bugs import PLANTS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", "edge", *words])
    return status, capsys.readouterr().out.splitlines()


def test_a_sound_seed_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "3-3")
    assert status == 0 and lines[0].endswith("nothing found")


def test_a_planted_bug_ends_with_1_and_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "1-1", "--plant", "client-believed", "--tries", "2")
    assert status == 1 and any(line.startswith("The shortest story of seed 1") for line in lines)
    assert "--plant client-believed --only" in lines[-1]


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plants")
    assert status == 0 and [line.split()[0] for line in lines] == [plant.name for plant in PLANTS]
