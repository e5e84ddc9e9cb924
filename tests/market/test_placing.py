"""Orders over a fleet: regions, constraints, counts, refusals."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import Bid, Decline, DeclineKind, PlaceAnswer, PlaceRequest, Verdict
from hawker.api.failure import problem_of
from hawker.config.placement import Placement, Spread
from hawker.errors import (
    BadRequest,
    DeadlineExceeded,
    Fault,
    HawkerError,
    NoRoom,
    NoRoomAtVolume,
    NotFound,
    OrderUncertain,
    Unavailable,
    Unprocessable,
    WrongState,
)
from hawker.market.placing import no_such_region, refusal
from hawker.market.preferences import Limits, preferences
from hawker.market.survey import Surveyed
from hawker.node import Capacity
from hawker.sim.node.sim_worker import APP, config_of
from tests.gateway.fleet import Fleet, Loss, fleet_at
from tests.worker.hourglass import in_virtual_time

FULL = Decline(kind=DeclineKind.NO_ROOM, reason="short of 5 cpus", shortfall={"cpus": 5})
FULLER = Decline(kind=DeclineKind.NO_ROOM, reason="short", shortfall={"cpus": 7, "memory_mb": 1})
CLOSED = Decline(kind=DeclineKind.CLOSED, reason="the node is cordoned")
LABELLED = Decline(kind=DeclineKind.UNFIT, reason="the node does not have the label disk=ssd")


def because(error: HawkerError, kind: DeclineKind = DeclineKind.UNFIT) -> Decline:
    return Decline(kind=kind, reason=str(error), http_status=error.status, problem=problem_of(error))


def told(*declines: Decline | str, errors: tuple[HawkerError, ...] = (), **config: Any) -> HawkerError:
    bids: dict[str, Bid | str] = {
        str(number): each if isinstance(each, str) else Bid(fits=0, decline=each)
        for number, each in enumerate(declines)
    }
    survey = Surveyed(nodes=(), passed_over={}, bids=bids, ranked=())
    return refusal(["mad"], [survey], errors, config_of(**config), "cdg")


def test_the_least_that_is_missing_is_told_with_the_nearest_that_could() -> None:
    error = told(FULLER, FULL)
    assert isinstance(error, NoRoom) and (error.shortfall, error.nearest) == ({"cpus": 5}, "cdg")
    assert str(error) == (
        "could not find a candidate host: no host in region 'mad' has room, short of 5 cpus; region 'cdg' has"
    )


@pytest.mark.parametrize(
    ("declines", "errors", "kind", "text"),
    [
        ((because(Unprocessable("config.x")), because(Unprocessable("config.x"))), (), Unprocessable, "config.x"),
        ((because(Unprocessable("config.x")), FULL), (), NoRoom, "short of 5 cpus"),
        ((because(NotFound("no volume"), DeclineKind.VOLUME),), (), NotFound, "no volume"),
        ((FULL,), (BadRequest("no such image"),), BadRequest, "no such image"),
        (("no answer in time",), (), Unavailable, "region 'mad' cannot be reached"),
        ((), (Fault("lost"),), Unavailable, "took the order, and none has it: lost"),
        ((), (NoRoom("x", scope="host", shortfall={"cpus": 1}),), NoRoom, "short of 1 cpus"),
        ((CLOSED,), (), NoRoom, r"as the order wants it \(the node is cordoned\)"),
        (
            (CLOSED, LABELLED, CLOSED),
            (),
            NoRoom,
            r"\(the node is cordoned; the node does not have the label disk=ssd\)",
        ),
        ((), (), NoRoom, "as the order wants it"),
        ((CLOSED, "no answer in time"), (), NoRoom, "; region 'cdg' has; one of its hosts did not answer, try again"),
        ((FULL, "no answer", "refused"), (), NoRoom, "; 2 of its hosts did not answer, try again"),
    ],
)
def test_a_reason_the_caller_can_act_on_comes_first(
    declines: tuple[Decline | str, ...], errors: tuple[HawkerError, ...], kind: type[HawkerError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        raise told(*declines, errors=errors)


def test_a_full_node_with_the_volume_has_an_error_of_its_own() -> None:
    mounts = [{"volume": "vol_0000000000000000", "path": "/data"}]
    assert isinstance(told(FULL, mounts=mounts), NoRoomAtVolume)


def test_a_region_that_there_is_not() -> None:
    error = no_such_region("nrt", "mad")
    assert (str(error), error.nearest) == (
        "could not find a candidate host: no host in region 'nrt', the nearest is 'mad'",
        "mad",
    )
    assert no_such_region("nrt", None).nearest is None


anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio
ONE = Capacity(cpus=4, memory_mib=256, disk_mib=10_000)
MOUNTS = [{"volume": "vol_0000000000000000", "path": "/data"}]


async def place(fleet: Fleet, *, key: str | None = None, region: str | None = None, **given: Any) -> PlaceAnswer:
    named = {each: given.pop(each) for each in ("count", "all_or_nothing", "dry_run") if each in given}
    machine = CreateMachineRequest(config=config_of(**given), region=region)
    answer: PlaceAnswer = await fleet.broker().place(PlaceRequest(app=APP, machine=machine, **named), key)
    return answer


def where(fleet: Fleet) -> dict[str, int]:
    return {host.id[-1]: len(host.made()) for host in fleet.hosts.values() if host.made()}


async def test_without_a_region_it_is_the_brokers_own(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        for region in ("mad", "cdg", "sin"):
            await fleet.host(region, room=ONE)
        assert (await fleet.broker().order()).region == "mad"
        with pytest.raises(
            NoRoom, match="no host in region 'mad' has room, short of 256 MiB of memory; region 'cdg' has"
        ):
            await fleet.broker().order()
        assert (await fleet.broker().order(region="any")).region == "cdg"
        assert (await fleet.broker().order(region="any")).region == "sin"
        with pytest.raises(NoRoom) as refused:
            await fleet.broker().order(region="any")
        assert (refused.value.scope, refused.value.shortfall) == ("region", {"memory_mb": 256})
        assert refused.value.nearest is None


async def test_regions_are_tried_in_the_order_of_the_list(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        for region in ("mad", "cdg", "sin", "fra"):
            await fleet.host(region, room=ONE)
        found = [(await fleet.broker().order(region="sin,eu")).region for _ in range(4)]
        assert found == ["sin", "mad", "cdg", "fra"]


async def test_a_region_that_there_is_not_is_refused_with_the_nearest(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        with pytest.raises(NoRoom, match="no host in region 'nrt', the nearest is 'mad'") as refused:
            await fleet.broker().order(region="nrt")
        assert refused.value.nearest == "mad"


async def test_a_region_that_cannot_be_reached_is_told_at_once_and_the_next_is_tried(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        near, far = await fleet.host("mad"), await fleet.host("sin")
        near.alive = False
        with pytest.raises(Unavailable, match="region 'mad' cannot be reached"):
            await fleet.broker().order()
        assert not [call for call in fleet.calls if call == ("fill", near.id)]
        assert (await fleet.broker().order(region="mad,sin")).region == "sin"
        near.alive = True
        fleet.lose("quote", Loss.REFUSED, near)
        with pytest.raises(Unavailable, match="region 'mad' cannot be reached"):
            await fleet.broker().order()
        assert where(fleet) == {far.id[-1]: 1}


async def test_labels_and_drivers_say_where_it_may_go(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        await fleet.host(labels={"disk": "hdd"})
        await fleet.host(labels={"disk": "ssd", "zone": "a"})
        for _ in range(3):
            await fleet.broker().order(metadata=Placement(labels={"disk": "ssd"}).metadata())
        assert where(fleet) == {"1": 3}
        with pytest.raises(NoRoom, match="as the order wants it"):
            await fleet.broker().order(metadata=Placement(labels={"disk": "nvme"}).metadata())
        with pytest.raises(NoRoom):
            await fleet.broker().order(metadata=Placement(driver="microvm").metadata())
        with pytest.raises(Unprocessable, match=r"config.metadata.hawker_spread: 'x' is not one of"):
            await fleet.broker().order(metadata={"hawker_spread": "x"})


async def test_apart_is_apart_also_when_two_are_ordered_at_once(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        apart = Placement(spread=Spread.HARD).metadata()
        refused: list[HawkerError] = []

        async def order() -> None:
            try:
                await fleet.broker().order(metadata=apart)
            except HawkerError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(order)
        assert where(fleet) == {"0": 1, "1": 1, "2": 1}
        assert len(refused) == 2 and all(isinstance(error, NoRoom) for error in refused)


async def test_a_machine_goes_where_its_volume_is(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        host = list(fleet.hosts.values())[1]
        await fleet.knows(host)
        assert host.worker is not None
        volume = await host.worker.volume("data", size_gb=1)
        await host.worker.at_rest()
        await fleet.broker().order(mounts=[{"volume": volume.id, "path": "/data"}])
        assert where(fleet) == {"1": 1}
        with pytest.raises(WrongState, match="is attached to machine"):
            await fleet.broker().order(mounts=[{"volume": volume.id, "path": "/data"}])
        with pytest.raises(NotFound, match="has no volume"):
            await fleet.broker().order(mounts=MOUNTS)


async def test_cordoned_nodes_are_passed_over_by_all(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        host = next(iter(fleet.hosts.values()))
        await fleet.cordon(host)
        await fleet.broker().order()
        assert where(fleet) == {"1": 1}
        shown = {bid.node[-1]: (bid.verdict, bid.why) for bid in (await place(fleet, dry_run=True)).bids}
        assert shown["0"] == (Verdict.NOT_ASKED, "the node is cordoned")
        host.seen_cordoned = False
        shown = {bid.node[-1]: (bid.verdict, bid.why) for bid in (await place(fleet, dry_run=True)).bids}
        assert shown["0"] == (Verdict.DECLINES, "the node is cordoned")


async def test_several_are_spread_and_the_same_key_finds_them(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        answer = await place(fleet, count=6, key="six")
        assert (answer.filled, answer.refusal) == (6, None)
        assert where(fleet) == {"0": 2, "1": 2, "2": 2}
        again = await place(fleet, count=6, key="six")
        assert [each.id for each in again.machines] == [each.id for each in answer.machines]
        assert len(fleet.made()) == 6


async def test_orders_that_can_be_filled_are_and_the_rest_is_reported(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        for region in ("mad", "mad", "cdg"):
            await fleet.host(region, room=ONE)
        answer = await place(fleet, count=5, region="mad,cdg")
        assert (answer.asked, answer.filled) == (5, 3) and len({each.id for each in answer.machines}) == 3
        assert answer.refusal is not None and answer.refusal.status == "insufficient_capacity"
        assert answer.refusal.shortfall == {"memory_mb": 256}


async def test_all_or_nothing_undoes_what_was_filled(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        with pytest.raises(NoRoom):
            await place(fleet, count=9, all_or_nothing=True)
        assert not [name for name, _ in fleet.calls if name == "fill"]
        fleet.lose("fill", Loss.REFUSED, times=12)
        with pytest.raises(HawkerError):
            await place(fleet, count=8, all_or_nothing=True, key="eight")
        await fleet.at_rest()
        assert fleet.made() == []
        assert (await place(fleet, count=8, all_or_nothing=True, key="eight")).filled == 8
        assert len(fleet.made()) == 8


async def test_an_undoing_that_is_not_certain_is_told(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", Loss.REFUSED, times=12)
        fleet.lose("cancel_order", Loss.REFUSED, times=1000)
        with pytest.raises(OrderUncertain):
            await place(fleet, count=8, all_or_nothing=True)


async def test_a_dry_run_asks_and_makes_nothing(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        await fleet.host(room=ONE)
        await fleet.host()
        answer = await place(fleet, count=2, dry_run=True)
        assert (answer.filled, answer.machines, fleet.made()) == (2, (), [])
        assert [bid.verdict for bid in answer.bids] == [Verdict.BEST, Verdict.FILLS]
        assert "behind the best: " in answer.bids[1].why


async def test_the_time_of_a_call_is_not_exceeded_by_waiting_for_bids(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.slow("quote", 3600.0)
        began = fleet.clock.monotonic()
        with pytest.raises(Unavailable):
            await fleet.broker(preferences(limits=Limits(bid_deadline_s=0.5))).order()
        assert fleet.clock.monotonic() - began < 2.0


async def test_an_order_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.slow("fill", 3600.0)
        with pytest.raises(DeadlineExceeded):
            await fleet.broker().order()
        await fleet.at_rest()
        assert fleet.made() == []
        assert any(name == "cancel_order" for name, _ in fleet.calls)


async def test_the_image_is_counted_where_it_is(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        broker = fleet.broker()
        first = await broker.order()
        await fleet.at_rest()
        holder = fleet.owner_of_machine(first.id)
        shown = {bid.node: bid for bid in (await place(fleet, dry_run=True)).bids}
        missing = {node: next(p.value for p in bid.parts if p.name == "image") for node, bid in shown.items()}
        assert holder is not None and missing[holder] == 0.0 and all(missing[n] > 0 for n in missing if n != holder)


async def test_an_app_that_there_is_not(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 1) as fleet:
        fleet.home = None
        with pytest.raises(NotFound, match="app not found"):
            await fleet.broker().order()
