"""Nodes on a street are one cluster; what is killed comes back, and at the end nothing is left."""

from pathlib import Path

import pytest

from hawker.api.contract.cluster import LIST_NODES
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.clock import SystemClock
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]

WITHIN_S = 150.0


@pytest.mark.long(
    reason="tests/e2e/test_edge_regions.py takes the power from a host of a fleet, test_network_lab.py gives it back"
)
async def test_nodes_find_each_other_again_after_a_crash_and_without_power(tmp_path: Path) -> None:
    for name in ("street", "nodes"):
        (tmp_path / name).mkdir()
    with NetworkLab(tmp_path / "street", 2) as lab:
        fleet = LabFleet(lab, tmp_path / "nodes", SystemClock(), driver="container")
        with fleet:
            first, second = fleet.stalls

            async def both() -> bool:
                async with first.daemon.client() as client:
                    nodes = (await client.call(LIST_NODES)).nodes
                    return sorted(node.state for node in nodes) == ["alive", "alive"]

            await eventually(both, WITHIN_S)
            second.crash()
            second.restart()
            await eventually(both, WITHIN_S)
            second.power_off()
            assert not second.host.has_power
            second.power_on()
            await eventually(both, WITHIN_S)
    assert fleet.left == []
