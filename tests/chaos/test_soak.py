"""A real node is soaked for a short while; what it is for is the long ones, see docs/chaos.md."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from hawker.chaos.daemon import HAWKER
from hawker.chaos.report import SoakReport
from hawker.chaos.soak import SoakPlan, plan_of
from hawker.errors import CannotStart
from hawker.host.residue import host, left
from tests.e2e.anyone import AS_NOBODY, open_to_all
from tests.waiting import wait_for

ENDS_WITHIN_S = 240.0
WHOLE_WITHIN_S = 600.0  # every boot, rest and end of one on a busy host


def begin(place: Path, *options: str, before_it: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """A soak whose directory is made in `place`."""
    command = [*before_it, HAWKER, "chaos", "soak", "--json", *options]
    environment = {**os.environ, "TMPDIR": str(place)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def reported(running: "subprocess.Popen[bytes]", within_s: float = ENDS_WITHIN_S) -> SoakReport:
    output, errors = running.communicate(timeout=within_s)
    assert running.returncode in (0, 1), errors
    report = msgspec.json.decode(output, type=SoakReport)
    assert report.status == running.returncode
    return report


def test_the_driver_is_what_the_user_may_use() -> None:
    assert plan_of(1, 2, None, root=True) == SoakPlan(minutes=1, seed=2, driver="container", grounded=True)
    assert plan_of(1, 2, None, root=False) == SoakPlan(minutes=1, seed=2, driver="process", grounded=False)
    assert plan_of(1, 2, "process", root=True).grounded
    with pytest.raises(CannotStart, match="needs root"):
        plan_of(1, 2, "container", root=False)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.long(reason="soaks for 18 s each; the interrupted soak is the short form")
@pytest.mark.parametrize(
    ("driver", "before_it"), [("container", ()), ("process", AS_NOBODY)], ids=["container", "process, for anyone"]
)
def test_a_short_soak_finds_nothing_and_leaves_nothing(driver: str, before_it: Sequence[str]) -> None:
    before = host()
    with open_to_all() as place:
        running = begin(place, "--minutes", "0.3", "--seed", "4", "--driver", driver, before_it=before_it)
        report = reported(running, WHOLE_WITHIN_S)
        assert [violation.what for violation in report.violations] == []
        assert report.rests >= 1 and report.boots >= 2 and sum(each.ok for each in report.calls) > 20
        wait_for(lambda: not left(before, place))
        assert list(place.iterdir()) == []


@pytest.mark.slow
def test_an_interrupted_soak_ends_in_order_with_a_report() -> None:
    before = host()
    with open_to_all() as place:
        logs = place / "logs"
        with begin(place, "--minutes", "60", "--seed", "6", "--driver", "process", "--logs", str(logs)) as running:
            wait_for(lambda: list(place.glob("hawker-soak-*/data/machines/*/run/pid")), ENDS_WITHIN_S)
            running.send_signal(signal.SIGINT)
            report = reported(running)
        assert report.violations == () and report.minutes < 30
        assert '"ready"' in (logs / "life-1.err").read_text()
        wait_for(lambda: not left(before, place))
        assert list(place.iterdir()) == [logs]
