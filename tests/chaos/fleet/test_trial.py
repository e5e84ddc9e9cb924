"""A small fleet of real nodes with real machines is hurt, and keeps its promises."""

import pytest

from hawker.chaos.fleet.trial import Plan, run_trial
from hawker.clock import SystemClock

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]


async def test_a_fleet_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    plan = Plan(nodes=4, orders=6, partition_s=5.0)
    report = await run_trial(plan, SystemClock(), said.append)
    assert report.findings == (), "\n".join(said)
    assert report.phases[0].filled == plan.orders
    reached = {moment.what for moment in report.moments}
    assert {"the lost host is down", "its spare runs", "its machine has given way"} <= reached
