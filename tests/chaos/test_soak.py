"""A real node is soaked for a short while; what it is for is the long ones, see docs/chaos.md."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from hawker.chaos.report import Report
from hawker.chaos.soak import Plan, plan_of, soak
from hawker.chaos.traces import host, left
from hawker.clock import SystemClock
from hawker.errors import CannotStart
from tests.waiting import wait_for

SHORT_MIN = 0.3


def test_the_driver_is_what_the_user_may_use() -> None:
    assert plan_of(1, 2, None, root=True) == Plan(minutes=1, seed=2, driver="container", grounded=True)
    assert plan_of(1, 2, None, root=False) == Plan(minutes=1, seed=2, driver="process", grounded=False)
    assert plan_of(1, 2, "process", root=True).grounded
    with pytest.raises(CannotStart, match="needs root"):
        plan_of(1, 2, "container", root=False)


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("plan", [
    pytest.param(plan_of(SHORT_MIN, 4, "container", root=True), marks=pytest.mark.root, id="container"),
    pytest.param(plan_of(SHORT_MIN, 5, "process", root=False), id="process, for anyone"),
])  # fmt: skip
async def test_a_short_soak_finds_nothing_and_leaves_nothing(plan: Plan) -> None:
    before = host()
    report = await soak(plan, SystemClock())
    assert [violation.what for violation in report.violations] == []
    assert report.rests >= 1 and report.boots >= 2 and sum(each.ok for each in report.calls) > 50
    assert left(before, "hawker-soak-") == []


@pytest.mark.slow
def test_an_interrupted_soak_ends_in_order_with_a_report() -> None:
    before = host()
    with tempfile.TemporaryDirectory(prefix="hawker-interrupted-") as name:
        program = [str(Path(sys.executable).with_name("hawker")), "chaos", "soak"]
        options = ["--minutes", "60", "--seed", "6", "--driver", "process", "--json"]
        environment = {**os.environ, "TMPDIR": name}
        with subprocess.Popen([*program, *options], stdout=subprocess.PIPE, env=environment) as running:
            wait_for(lambda: list(Path(name).glob("hawker-soak-*/data/machines/*/run/pid")), 60)
            running.send_signal(signal.SIGINT)
            output, _ = running.communicate(timeout=120)
        report = msgspec.json.decode(output, type=Report)
        assert running.returncode == report.status == 0, report.violations
        assert report.minutes < 5 and list(Path(name).iterdir()) == []
        assert left(before, name) == []
