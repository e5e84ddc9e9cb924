import json

import pytest

from hawker.cli.main import main
from hawker.sim.catalog.planted import PLANTS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", "catalog", *words])
    return status, capsys.readouterr().out.splitlines()


def test_sound_replication_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--seeds", "1-3") == (0, ["3 seeds played, 0 with a finding"])


def test_a_planted_bug_is_told_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "0-3", "--plant", "skip-ahead")
    assert status == 1 and lines[0].startswith("seed ") and "4 seeds played" in lines[-1]


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--plants") == (0, [plant.name for plant in PLANTS])


def test_how_a_change_spreads_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--spread", "10", "--changes", "5", "--json")
    assert status == 0
    assert 0 < json.loads(lines[0])["p50_s"] < 0.25
    assert said(capsys, "--spread", "3", "--changes", "2")[1][0].split()[:2] == ["hosts", "regions"]


def test_programs_get_an_object_for_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "1-2", "--json")
    assert status == 0 and [json.loads(line)["seed"] for line in lines] == [1, 2]
