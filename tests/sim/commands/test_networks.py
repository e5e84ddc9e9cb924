import pytest

from hawker.cli.main import main
from hawker.sim.networks.network_bugs import PLANTS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", "networks", *words])
    return status, capsys.readouterr().out.splitlines()


def test_a_sound_seed_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "5-5")
    assert status == 0 and lines[0].endswith("nothing found")


def test_a_planted_bug_ends_with_1_and_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "1-1", "--plant", "sleepers-named", "--tries", "2")
    assert status == 1 and any(line.startswith("The shortest story of seed 1") for line in lines)
    assert "--plant sleepers-named --only" in lines[-1]


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plants")
    assert status == 0 and [line.split()[0] for line in lines] == [plant.name for plant in PLANTS]
