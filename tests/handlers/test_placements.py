"""Where machines would find room, as the market is told over HTTP."""

from typing import Any

import pytest

from hawker.api.contract.market import (
    LIST_PLACEMENTS,
    PlacementsRequest,
    RegionPlacement,
)
from hawker.config import Guest
from hawker.errors import NoRoom, Unprocessable
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import ROOM

pytestmark = pytest.mark.anyio
SMALL = Guest(cpu_kind="shared", cpus=1, memory_mb=256)


async def placed(worker: SimWorker, **given: Any) -> tuple[RegionPlacement, ...]:
    given = {"org_slug": "personal", "compute": SMALL, **given}
    answer = await worker.api.call(LIST_PLACEMENTS, body=PlacementsRequest(**given))
    assert answer.regions == answer.Regions
    return answer.regions


async def fits(worker: SimWorker, **given: Any) -> int:
    found = await placed(worker, **given)
    return found[0].count if found else 0


async def test_without_a_count_it_is_as_many_as_fit_and_then_no_more(worker: SimWorker) -> None:
    guest = Guest(cpu_kind="performance", cpus=ROOM.cpus // 2, memory_mb=512)
    assert await fits(worker, compute=guest) == 2
    for _ in range(2):
        await worker.started(guest={"cpu_kind": "performance", "cpus": ROOM.cpus // 2, "memory_mb": 512})
    assert await fits(worker, compute=guest) == 0
    with pytest.raises(NoRoom):
        await worker.started(guest={"cpu_kind": "performance", "cpus": ROOM.cpus // 2, "memory_mb": 512})


async def test_resources_machines_hold_are_not_offered(worker: SimWorker) -> None:
    before = await fits(worker)
    await worker.started(guest={"cpu_kind": "shared", "cpus": 1, "memory_mb": 256})
    assert await fits(worker) == before - 1


async def test_a_count_is_a_wish(worker: SimWorker) -> None:
    most = await fits(worker)
    assert await fits(worker, count=1) == 1
    assert await fits(worker, count=most + 5) == most


async def test_the_usual_size_is_a_performance_cpu(worker: SimWorker) -> None:
    assert await fits(worker, compute=None) == await fits(worker, compute=Guest(cpu_kind="performance", cpus=1))
    assert await fits(worker, compute=None) < await fits(worker)


async def test_a_volume_takes_disk(worker: SimWorker) -> None:
    disk = ROOM.disk_mib << 20
    assert await fits(worker, volume_size_bytes=disk) == 0
    assert await fits(worker, volume_size_bytes=disk // 4) == 3
    assert await fits(worker, volume_name="data") == await fits(worker, volume_size_bytes=3 << 30)


@pytest.mark.parametrize(("region", "there"), [("local", True), ("any", True), ("iad,any", True), ("eu", False)])
async def test_a_region_that_the_node_is_not_in_has_nothing(worker: SimWorker, region: str, there: bool) -> None:
    assert bool(await placed(worker, region=region)) is there


async def test_each_key_is_there_in_both_spellings(worker: SimWorker) -> None:
    (found,) = await placed(worker, count=2, weights={"region": 1000, "spread": 0})
    assert (found.region, found.count, found.concurrency) == ("local", 2, 2)
    assert (found.Region, found.Count, found.Concurrency) == ("local", 2, 2)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"count": -1}, "count"),
        ({"count": 10**9}, "count"),
        ({"volume_size_bytes": -1}, "volume_size_bytes"),
        ({"volume_size_bytes": 1 << 62}, "volume_size_bytes"),
        ({"weights": {"luck": 1}}, "weights"),
        ({"compute": Guest(cpus=0)}, "^compute.cpus"),
        ({"compute": Guest(gpu_kind="a10")}, "^compute.gpu_kind"),
    ],
)
async def test_a_senseless_order_is_refused_by_name(worker: SimWorker, given: dict[str, Any], named: str) -> None:
    with pytest.raises(Unprocessable, match=named):
        await placed(worker, **given)
