from dataclasses import replace

import pytest

from hawker.api.contract.node import HEALTH, LIST_REGIONS, NODE_INFO
from hawker.api.in_process import InProcessCaller
from hawker.runtime.driver_probe import DriverVerdict
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import ROOM
from hawker.worker.handlers import worker_handlers

pytestmark = pytest.mark.anyio


async def test_the_node_tells_what_it_has_and_what_is_used(worker: SimWorker) -> None:
    await worker.started(guest={"cpu_kind": "shared", "cpus": 2, "memory_mb": 512})
    await worker.stopped()
    node = await worker.api.call(NODE_INFO)
    assert (node.region, node.driver) == ("local", "fake")
    assert (node.capacity.cpus, node.capacity.memory_mb) == (ROOM.cpus, ROOM.memory_mib)
    assert (node.used.shared_cpus, node.used.memory_mb) == (2, 512)
    assert node.machines == {"started": 1, "stopped": 1}


async def test_the_node_tells_what_it_found_of_each_driver(worker: SimWorker) -> None:
    found = (
        DriverVerdict(name="qemu", usable=True, reason="it emulates", by_itself=False),
        DriverVerdict(name="container", usable=True, reason="all is there", by_itself=True, chosen=True),
    )
    api = InProcessCaller(worker_handlers(replace(worker.parts, drivers=found)), worker.parts.deps.clock, "ann")
    told = (await api.call(NODE_INFO)).drivers
    assert [(each.name, each.usable, each.reason, each.chosen) for each in told] == [
        ("qemu", True, "it emulates", False),
        ("container", True, "all is there", True),
    ]


async def test_health_and_regions(worker: SimWorker) -> None:
    assert (await worker.api.call(HEALTH)).status == "ok"
    regions = await worker.api.call(LIST_REGIONS)
    assert [region.code for region in regions.regions] == [regions.nearest] == ["local"]
    assert (regions.Regions, regions.Nearest) == (regions.regions, regions.nearest)
