"""A small fleet of real nodes with real machines is hurt, and keeps its promises."""

from pathlib import Path

import pytest

from hawker.chaos.fleet.trial import TrialPlan, run_trial
from hawker.clock import SystemClock

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.timeout(3600),  # some minutes, and more on a busy host
    pytest.mark.long(reason="four nodes are hurt for a minute; tests/e2e/test_agent_fleet.py is the short form"),
]


async def test_a_fleet_keeps_its_promises(tmp_path: Path) -> None:
    """All its nodes are on one host, which may be busy: they are given more time to bid than others are."""
    said: list[str] = []
    market = tmp_path / "market.toml"
    market.write_text("[limits]\nbid_deadline_s = 4.0\n")
    plan = TrialPlan(nodes=4, orders=6, partition_s=5.0, flags=("--market", str(market)))
    report = await run_trial(plan, SystemClock(), said.append)
    assert report.findings == (), "\n".join(said)
    assert report.phases[0].filled == plan.orders
    reached = {moment.what for moment in report.moments}
    assert {"the lost host is down", "its spare runs", "its machine has given way"} <= reached
