"""`hawker chaos steps` as a command: what it prints, how it ends, and that it leaves nothing."""

import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from hawker.chaos.daemon import HAWKER
from hawker.chaos.steps import StepsReport
from hawker.host.residue import host, left
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
LONG = pytest.mark.long(reason="ten daemons die; the flow `memory` with its five is the short form")
FIVE = pytest.mark.long(
    reason="five daemons die; tests/chaos/test_kill_runner_siege.py has deaths, and test_steps.py what is printed"
)
AGAIN = pytest.mark.long(reason="the other signal is the short form")
WITHIN_S = 600.0


def steps(place: Path, *arguments: str) -> list[str]:
    return [HAWKER, "chaos", "steps", "--data-dir", str(place), *arguments]


@pytest.mark.parametrize(
    ("flow", "driver", "last"),
    [
        pytest.param("memory", "container", ["memory", "limit", "after"], marks=[pytest.mark.root, FIVE]),
        pytest.param("rest", "process", ["rest", "release", "after"], marks=LONG),
    ],
    ids=["memory", "rest"],
)
def test_one_flow_is_killed_everywhere_and_nothing_is_found(
    flow: str, driver: str, last: list[str], tmp_path: Path
) -> None:
    before, command = host(), steps(tmp_path, "--flow", flow, "--driver", driver)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    head, *rows, summary = done.stdout.splitlines()
    assert head.split() == ["FLOW", "STEP", "KILLED", "RECOVERED", "FINDINGS"]
    assert rows[-1].split()[:3] == last
    assert all(row.endswith("none") for row in rows)
    assert summary.startswith(f"{len(rows)} deaths, 0 findings; recovered in ")
    wait_for(lambda: not left(before, tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@LONG
def test_one_flow_of_containers_as_a_document(tmp_path: Path) -> None:
    before = host()
    command = steps(tmp_path, "--flow", "rest", "--driver", "container", "--in-a-row", "--json")
    done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)
    report = msgspec.json.decode(done.stdout, type=StepsReport)
    assert (done.returncode, report.found, report.driver) == (0, 0, "container"), report
    assert {(row.step, row.where) for row in report.rows} >= {("exit", "inside"), ("release", "after")}
    assert any(row.recovered_ms is None for row in report.rows)
    wait_for(lambda: not left(before, tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=AGAIN)])
def test_an_interrupt_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    before = host()
    command = steps(tmp_path, "--flow", "start", "--driver", "process")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() and running.stdout.readline()
        running.send_signal(number)
        assert running.wait(WITHIN_S) == 130
    wait_for(lambda: not left(before, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_no_move_comes_by_is_refused() -> None:
    done = subprocess.run(
        [HAWKER, "chaos", "move", "--place", "mvoe.grant"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no place of a move begins with 'mvoe.grant'" in done.stderr and "deliver, move, receive" in done.stderr
