"""The market's calls between nodes, as they come over HTTP."""

from typing import Any

import msgspec
import pytest

from hawker.api.codec import encode_json
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CreateMachineRequest, Machine
from hawker.api.contract.market import (
    CANCEL,
    CLAIM,
    EXPORT_APP,
    FILL,
    LIST_PLACEMENTS,
    QUOTE,
    BidAsk,
    BidsRequest,
    CancelQuery,
    ClaimParams,
    ClaimRequest,
    OrderParams,
    OrderRequest,
    PlacementsRequest,
    RegionPlacement,
)
from hawker.api.routes import PEER_ROUTES
from hawker.config import Guest
from hawker.errors import BadRequest, NoRoom, OrderCancelled, Unprocessable
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.sim.node.world import ROOM
from hawker.worker.bids import MOST_AT_ONCE

pytestmark = pytest.mark.anyio
MACHINE = CreateMachineRequest(config=config_of())


async def fill(worker: SimWorker, key: str = "o", machine: CreateMachineRequest = MACHINE) -> Machine:
    app = await worker.api.call(EXPORT_APP, params=AppParams(app_name=APP))
    return await worker.api.call(FILL, body=OrderRequest(order_id=key, app=app, machine=machine))


async def test_many_asks_are_answered_in_their_order(worker: SimWorker) -> None:
    asks = [msgspec.Raw(encode_json(BidAsk(app=APP, machine=MACHINE, count=count))) for count in (1, 2, 3)]
    bids = (await worker.api.call(QUOTE, body=BidsRequest(asks=(*asks, msgspec.Raw(b"7"))))).bids
    assert [bid.fits for bid in bids] == [1, 2, 3, 0]
    with pytest.raises(BadRequest, match="asks: 65 are more than 64"):
        await worker.api.call(QUOTE, body=BidsRequest(asks=(asks[0],) * (MOST_AT_ONCE + 1)))


async def test_an_order_is_answered_with_the_machine_and_its_lease(worker: SimWorker) -> None:
    made = await fill(worker, machine=msgspec.structs.replace(MACHINE, lease_ttl=60))
    assert made.nonce and made.state is State.CREATED
    assert (await fill(worker, machine=msgspec.structs.replace(MACHINE, lease_ttl=60))).nonce == made.nonce


async def test_a_cancel_says_what_became_of_the_order(worker: SimWorker) -> None:
    made = await fill(worker, "o")
    query = CancelQuery(app_name=APP)
    late = await worker.api.call(CANCEL, params=OrderParams(order_id="o"), query=query)
    assert late.filled is not None and late.filled.id == made.id
    early = await worker.api.call(CANCEL, params=OrderParams(order_id="p"), query=query)
    assert early.filled is None
    with pytest.raises(OrderCancelled):
        await fill(worker, "p")


async def test_an_undone_order_is_destroyed_whoever_holds_its_lease(worker: SimWorker) -> None:
    made = await fill(worker, machine=msgspec.structs.replace(MACHINE, lease_ttl=60))
    query = CancelQuery(app_name=APP, destroy=True)
    for _ in range(2):
        undone = await worker.api.call(CANCEL, params=OrderParams(order_id="o"), query=query)
        assert undone.filled is not None and undone.filled.id == made.id
        await worker.at_rest()
        assert worker.record(made.id).state is State.DESTROYED
    with pytest.raises(OrderCancelled):
        await fill(worker)


async def test_a_claim_is_given_once(worker: SimWorker) -> None:
    params = ClaimParams(app_name=APP, order_id="k/1")
    first = await worker.api.call(CLAIM, params=params, body=ClaimRequest(node="0000000a"))
    second = await worker.api.call(CLAIM, params=params, body=ClaimRequest(node="0000000b"))
    assert first == second and (first.node, first.number) == ("0000000a", 0)
    moved = await worker.api.call(CLAIM, params=params, body=ClaimRequest(node="0000000b", instead_of=0))
    assert (moved.node, moved.number) == ("0000000b", 1)


def test_calls_between_nodes_are_none_of_the_publics() -> None:
    assert {QUOTE, FILL, CANCEL, CLAIM, EXPORT_APP} <= set(PEER_ROUTES)
    assert all(route.path.startswith("/internal/v1/") for route in PEER_ROUTES)


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
