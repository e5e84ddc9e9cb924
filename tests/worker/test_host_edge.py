"""The edge of a host as its daemon sees it: addresses of apps in private networks."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.feed import AppAddress, GatePlace
from hawker.host.process_guard import ProcessGuard
from hawker.ids import AppName, NodeId
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.worker.host_edge import HostEdge
from tests.waiting import eventually
from tests.worker.test_edge_door import door_of

pytestmark = pytest.mark.anyio


class Bridges:
    """Part of `Networks`."""

    def __init__(self) -> None:
        self.served: list[Mapping[int, frozenset[str]]] = []

    async def serve_at(self, addresses: Mapping[int, frozenset[str]]) -> None:
        self.served.append(addresses)


async def test_private_addresses_of_apps_are_the_hosts(worker: SimWorker, tmp_path: Path) -> None:
    door, bridges, clock = door_of(worker), Bridges(), SystemClock()
    edge = HostEdge(door, ProcessGuard(tmp_path, tmp_path / "edge", clock, "edge"), bridges, clock)
    door.join(GatePlace(node=NodeId("0000000a"), host="10.0.0.1", port=4291), lambda: "")
    door.tell_far((), [AppAddress(app=AppName(APP), ip="fdaa:0:7::1:2")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(edge.serve)
        await eventually(lambda: bool(bridges.served))
        tasks.cancel_scope.cancel()
    assert bridges.served == [{7: {"fdaa:0:7::1:2"}}]
