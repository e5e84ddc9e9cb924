from pathlib import Path
from typing import Any

import pytest

from hawker.api.call_metadata import written_behalf
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest
from hawker.api.contract.market import LIST_PLACEMENTS, PlacementsRequest, PlaceRequest
from hawker.api.in_process import InProcessCaller
from hawker.config import Guest
from hawker.errors import BadRequest, NoRoom, RateLimited, Unprocessable
from hawker.market.handlers import MOST_AT_ONCE
from hawker.market.preferences import Limits, preferences
from hawker.sim.node.sim_worker import APP, config_of
from tests.gateway.fleet import Fleet, Loss, fleet_at
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio
SKIPPED = CreateMachineRequest(config=config_of(), skip_launch=True)
SMALL = Guest(cpu_kind="shared", cpus=1, memory_mb=256)


async def _offers(fleet: Fleet, **given: Any) -> list[tuple[str, int]]:
    body = PlacementsRequest(**{"org_slug": "personal", "compute": SMALL, **given})
    answer = await fleet.broker().api.call(LIST_PLACEMENTS, body=body)
    assert answer.regions == answer.Regions
    return [(each.region, each.count) for each in answer.regions]


async def test_offers_of_nodes_are_summed_by_region_the_nearest_first(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        for region in ("sin", "mad", "cdg", "mad"):
            await fleet.host(region)
        assert await _offers(fleet) == [("mad", 8), ("cdg", 4), ("sin", 4)]
        assert await _offers(fleet, region="eu") == [("mad", 8), ("cdg", 4)]
        assert await _offers(fleet, count=5) == [("mad", 5), ("cdg", 4), ("sin", 4)]
        fleet.lose("list_placements", Loss.REFUSED, list(fleet.hosts.values())[2])
        await fleet.cordon(list(fleet.hosts.values())[1])
        assert await _offers(fleet) == [("mad", 4), ("sin", 4)]


async def test_a_size_that_there_is_not_is_refused(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        with pytest.raises(Unprocessable, match=r"compute.cpus"):
            await _offers(fleet, compute=Guest(cpu_kind="shared", cpus=-1))


async def test_a_caller_that_orders_too_many_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        broker = fleet.broker(preferences(limits=Limits(per_caller_s=1, per_caller_burst=2)), limited=True)
        await broker.order()
        await broker.order()
        asked = len(fleet.calls)
        with pytest.raises(RateLimited):
            await broker.order()
        assert len(fleet.calls) == asked
        await fleet.clock.sleep(1.0)
        await broker.order()


async def test_an_order_that_is_refused_takes_no_order_from_its_caller(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        broker = fleet.broker(preferences(limits=Limits(per_caller_s=1, per_caller_burst=3)), limited=True)
        await broker.order()
        with pytest.raises(RateLimited) as refused:
            await broker.place(PlaceRequest(app=APP, machine=SKIPPED, count=3))
        assert refused.value.after_s == 1
        await broker.order()
        await broker.order()


async def test_an_order_of_as_many_as_may_be_waits_for_a_full_bucket_alone(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        broker = fleet.broker(preferences(limits=Limits(per_caller_s=100, per_caller_burst=3)), limited=True)
        answer = await broker.place(PlaceRequest(app=APP, machine=SKIPPED, count=MOST_AT_ONCE))
        assert answer.asked == MOST_AT_ONCE and answer.filled > 3
        with pytest.raises(RateLimited):
            await broker.order()
        await fleet.clock.sleep(MOST_AT_ONCE / 100)
        await broker.order()


async def test_a_caller_is_known_by_its_token_and_not_by_its_name(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        broker = fleet.broker(preferences(limits=Limits(per_caller_s=1, per_caller_burst=2)), limited=True)
        eve, ann = "e" * 24, "a" * 24

        def by(name: str, token_id: str) -> InProcessCaller:
            return InProcessCaller(broker.handlers, fleet.clock, written_behalf(name, (token_id, token_id)))

        async def order(name: str, token_id: str) -> None:
            body = CreateMachineRequest(config=config_of())
            await by(name, token_id).call(CREATE_MACHINE, params=AppParams(app_name=APP), body=body, timeout_s=600)

        await order("eve", eve)
        await order("ann", eve)
        with pytest.raises(RateLimited):
            await order("a fresh name", eve)
        await order("ann", ann)


async def test_counts_and_keys_have_bounds(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        machine = CreateMachineRequest(config=config_of())
        for count in (0, 1001):
            with pytest.raises(Unprocessable, match="count"):
                await fleet.broker().place(PlaceRequest(app=APP, machine=machine, count=count))
        with pytest.raises(BadRequest, match="Idempotency-Key"):
            await fleet.broker().order(key="k" * 201)


async def test_a_spare_is_not_placed_beside_what_it_stands_by_for(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        broker = fleet.broker()
        watched = await broker.order()
        for _ in range(2):
            spare = await broker.order(standbys=(watched.id,))
            assert fleet.owner_of_machine(spare.id) != fleet.owner_of_machine(watched.id)
            moved = await broker.order(metadata={"hawker_apart_from": spare.id})
            assert fleet.owner_of_machine(moved.id) != fleet.owner_of_machine(spare.id)


async def test_where_there_is_no_other_host_a_spare_is_placed_beside_it_and_its_history_says_so(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        broker = fleet.broker()
        watched = await broker.order()
        owner = fleet.owner_of_machine(watched.id)
        assert owner is not None
        for host in fleet.hosts.values():
            if host.id != owner:
                await fleet.cordon(host)
        with pytest.raises(NoRoom):
            await broker.order(standbys=(watched.id,), metadata={"hawker_spread": "hard"})
        spare = await broker.order(standbys=(watched.id,))
        assert fleet.owner_of_machine(spare.id) == owner
        (told,) = [event for event in spare.events or () if event.type == "standby"]
        assert told.status == "beside" and watched.id in told.error
