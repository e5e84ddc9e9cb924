"""Deploys over real nodes, behind their edges and under load, while whoever takes part dies."""

from pathlib import Path

import pytest

from hawker.chaos.deploys.deploy_blow import WHOLE, BlowKind
from hawker.chaos.deploys.deploy_report import DeployRow, deploy_line
from hawker.chaos.deploys.deploy_trial import DeployTrialPlan, run_deploy_trial
from hawker.clock import SystemClock

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]


async def played(plan: DeployTrialPlan) -> list[DeployRow]:
    told: list[DeployRow] = []
    report = await run_deploy_trial(plan, SystemClock(), told.append)
    found = [*report.findings, *(deploy_line(row) for row in report.rows if row.findings)]
    assert report.found == 0, "\n".join(found)
    assert report.rows == tuple(told) and all(row.requests > 0 for row in told)
    return told


@pytest.mark.timeout(3600)  # some minutes, and more on a busy host
@pytest.mark.long(
    reason="four nodes; tests/e2e/test_deploys_page.py kills client and daemon, test_deploy_edge.py has requests, and "
    "the simulator of deploys in `make check` loses drivers"
)
async def test_a_deploy_ends_whoever_of_its_client_and_its_driver_dies(tmp_path: Path) -> None:
    """The short form of `hawker chaos deploys`."""
    kinds = (BlowKind.CLIENT, BlowKind.DRIVER_HOST)
    rows = await played(DeployTrialPlan(nodes=4, strategies=("rolling",), kinds=kinds, places=(), where=tmp_path))
    assert [row.blow for row in rows] == [kind.value for kind in kinds]
    assert rows[0].end == "complete"


@pytest.mark.timeout(10_800)  # half an hour, and some times as much on a busy host
@pytest.mark.long(reason="ten nodes, both strategies, every blow and place; the test above is the short form")
async def test_deploys_over_ten_nodes_end_as_promised_whatever_befalls_them(tmp_path: Path) -> None:
    rows = await played(DeployTrialPlan(where=tmp_path))
    assert {row.blow for row in rows} >= {kind.value for kind in WHOLE}
    assert {row.end for row in rows} == {"complete", "rolled_back"}
