import msgspec
import pytest

from hawker.cli.exits import Failure
from hawker.cli.main import main
from hawker.sim.commands.worker import BenchPlace
from hawker.sim.worker.planted import PLANTS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", *words])
    return status, capsys.readouterr().out.splitlines()


def test_seeds_are_played_one_by_one_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "2-3", "--minutes", "0.2")
    assert status == 0 and [line.split(":")[0] for line in lines[:2]] == ["seed 2", "seed 3"]
    assert lines[2].startswith("2 seeds, ") and lines[2].endswith("a second")


def test_a_planted_bug_is_found_told_and_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plant", "room-twice")
    assert status == 1 and lines[1].startswith("The shortest story of seed 1, 1 of its ")
    again = lines[-1].removeprefix("Again: hawker sim ").split()
    assert "--only" in again and said(capsys, *again)[0] == 1


def test_for_programs_there_is_one_object_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seed", "1", "--plant", "room-twice", "--json")
    assert status == 1 and len(lines) == 1
    report = msgspec.json.decode(lines[0])
    assert report["seed"] == 1 and report["found"][0]["invariant"] == "capacity is the sum of the records"


def test_the_trace_has_every_commit(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seed", "2", "--minutes", "0.1", "--trace")
    assert status == 0 and any(" commit " in line for line in lines)


def test_plants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plants")
    assert status == 0 and [line.split()[0] for line in lines] == [plant.name for plant in PLANTS]


@pytest.mark.parametrize("words", [("--seeds", "x"), ("--seeds", "5-2"), ("--only", "1,a"), ("--plant", "none")])
def test_unreadable_option_is_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words]) == 2
    assert "error:" in capsys.readouterr().err


def test_option_of_the_worker_before_another_simulator_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "3", "networks", "--plants"]) == 2
    assert "--seeds is of `hawker sim` alone: options of `networks` follow it" in capsys.readouterr().err


def test_command_of_bench_is_refused_where_there_is_no_checkout() -> None:
    with pytest.raises(Failure, match="run it in a checkout"):
        BenchPlace("bench.schedulers.away", "x").load()
