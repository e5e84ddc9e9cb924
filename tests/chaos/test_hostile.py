"""`hawker chaos hostile` as a command: what it prints, how it ends, that it finds holes, and that it leaves nothing."""

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from hawker.chaos.daemon import HAWKER
from hawker.chaos.hostile.judgement import HostileReport
from hawker.chaos.hostile.planted import HOLES
from hawker.chaos.hostile.trial import SCENES
from hawker.host.residue import host, left
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
AGAIN = pytest.mark.long(reason="the other signal is the short form")
WITHIN_S = 600.0
WHOLE_WITHIN_S = 1500.0  # each scene three times on a busy host, where much is slow beside the attack


def hostile(place: Path, *arguments: str) -> list[str]:
    return [HAWKER, "chaos", "hostile", "--data-dir", str(place), *arguments]


@pytest.mark.timeout(1800)
@pytest.mark.long(reason="half a minute and more; tests/e2e/test_tenants.py and tests/escape have what attacks")
def test_one_scene_of_each_kind_is_played_and_nothing_is_found(tmp_path: Path) -> None:
    before = host()
    command = hostile(tmp_path, "--short", "--minutes", "0.1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WHOLE_WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    head, *rows, summary = done.stdout.splitlines()
    assert head.split()[:3] == ["SCENE", "BY", "SHARED"]
    assert len(rows) == len([scene for scene in SCENES if scene.short])
    assert all(row.endswith("none") for row in rows)
    assert summary.startswith(f"{len(rows)} scenes, 0 findings; ")
    wait_for(lambda: not left(before, tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(1800)
@pytest.mark.long(reason="six attacks on a node with six holes; the same scenes on a sound node are the short form")
def test_each_planted_hole_is_found_by_its_scene(tmp_path: Path) -> None:
    holes = [word for hole in HOLES for word in ("--plant", hole.name, "--scene", hole.scene)]
    command = hostile(tmp_path, *holes, "--minutes", "0.5", "--json")
    done = subprocess.run(command, capture_output=True, timeout=WHOLE_WITHIN_S, check=False)
    report = msgspec.json.decode(done.stdout, type=HostileReport)
    assert done.returncode == 1
    assert {row.scene for row in report.rows if row.findings} == {hole.scene for hole in HOLES}, report


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=AGAIN)])
def test_an_interrupt_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    before = host()
    command = hostile(tmp_path, "--scene", "calls without a token")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline()
        wait_for(lambda: any(tmp_path.glob("*/node/life-1.out")), WITHIN_S)
        os.kill(running.pid, number)
        assert running.wait(WITHIN_S) == (130 if number == signal.SIGINT else -number)
    wait_for(lambda: not left(before, tmp_path))
    wait_for(lambda: not any(tmp_path.glob("*/node")))
