from pathlib import Path

import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import BidAsk
from hawker.config.placement import Placement
from hawker.market.bids import Bidding
from hawker.market.candidates import Wanted
from hawker.market.preferences import preferences
from hawker.market.survey import Surveyed, Surveyor
from hawker.sim.node.sim_worker import APP, config_of
from tests.gateway.fleet import Fleet, Loss, fleet_at
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio


async def surveyed(fleet: Fleet, surveyor: Surveyor, count: int = 1) -> Surveyed:
    ask = BidAsk(app=APP, machine=CreateMachineRequest(config=config_of()), count=count)
    found = [each async for each in surveyor.region("mad", Wanted(placement=Placement()), ask, 60.0, shows=True)]
    return found[-1]


async def test_an_image_known_to_one_node_is_asked_of_the_others(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        surveyor = Surveyor(fleet, Bidding(fleet), preferences(), fleet.clock)
        assert {bid.image_bytes for bid in (await surveyed(fleet, surveyor)).heard} == {None}
        await fleet.broker().order()
        await fleet.at_rest()
        await surveyed(fleet, surveyor)
        bids = (await surveyed(fleet, surveyor)).heard
        sizes = [bid.image_bytes for bid in bids]
        assert len(set(sizes)) == 1 and sizes[0]
        assert sorted(bid.missing_bytes or 0 for bid in bids) == [0, sizes[0], sizes[0]]


async def test_a_region_of_nobody_is_told_of_all_the_same(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        for host in fleet.hosts.values():
            host.alive = False
        surveyor = Surveyor(fleet, Bidding(fleet), preferences(), fleet.clock)
        found = await surveyed(fleet, surveyor)
        assert (found.ranking, found.planned, len(found.shown)) == ([], [], 2)
        assert set(found.passed_over.values()) == {"the node cannot be reached"}


async def test_several_are_planned_and_the_silent_are_shown(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        surveyor = Surveyor(fleet, Bidding(fleet), preferences(), fleet.clock)
        fleet.lose("quote", Loss.REQUEST)
        found = await surveyed(fleet, surveyor, count=4)
        assert len(found.planned) == 4 and len(found.ranking) == 2
        assert [each.verdict.value for each in found.shown] == ["best", "fills", "silent"]
