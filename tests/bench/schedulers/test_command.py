from pathlib import Path

import msgspec
import pytest

from bench.schedulers.planted import PLANTS
from bench.schedulers.run import POLICIES
from hawker.cli.main import main

SMALL = ("--hosts", "5", "--orders", "100")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", "schedulers", *words])
    return status, capsys.readouterr().out.splitlines()


def test_all_policies_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, *SMALL)
    assert status == 0 and [line.split()[1] for line in lines[1:]] == list(POLICIES)


def test_for_programs_there_is_one_document_with_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--policy", "market", "--hosts", "5,10", "--orders", "50", "--json")
    document = msgspec.json.decode("\n".join(lines))
    assert status == 0 and document["costs"]["poll_s"] == 1.0
    assert [report["hosts"] for report in document["reports"]] == [5, 10]


def test_pictures_are_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("one", "two"):
        assert said(capsys, *SMALL, "--plots", str(tmp_path / folder))[0] == 0
    pictures = {file.name: file.read_bytes() for file in (tmp_path / "one").iterdir()}
    assert len(pictures) == 5
    assert pictures == {file.name: file.read_bytes() for file in (tmp_path / "two").iterdir()}


def test_a_trace_takes_the_place_of_chance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("arrival_s,cpus,memory_mib,lifetime_s,image,image_mib\n1,1,512,60,web,100\n2,1,512,60,web,100\n")
    status, lines = said(capsys, "--hosts", "3", "--policy", "spread", "--trace", str(file))
    assert status == 0 and lines[1].split()[2] == "2"
    file.write_text("arrival_s\n")
    assert main(["sim", "schedulers", "--trace", str(file)]) == 1
    assert "the trace's line 1" in capsys.readouterr().err


def test_a_planted_bug_ends_with_1_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--policy", "market", "--hosts", "10", "--orders", "1000", "--plant", "room-kept")
    assert status == 1 and "the room of a host is the sum of its records" in lines[2]


def test_plants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plants")
    assert status == 0 and [line.split()[0] for line in lines] == [plant.name for plant in PLANTS]


@pytest.mark.parametrize(
    "words",
    [("--hosts", "0"), ("--hosts", "1,x"), ("--hosts", "99999999"), ("--policy", "none"), ("--trace", "none.csv")],
)
def test_unreadable_option_is_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "schedulers", *words]) == 2
    assert "error:" in capsys.readouterr().err
