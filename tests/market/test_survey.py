from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import Bid, BidAsk, Bids
from hawker.api.directory import Node
from hawker.config import MachineConfig
from hawker.config.placement import Placement
from hawker.errors import BadRequest, HawkerError, TooLarge, Unavailable, Unprocessable
from hawker.ids import NodeId
from hawker.market.preferences import Limits, preferences
from hawker.market.survey import SILENT, Bidding, Fields, Surveyed, Surveyor, Wanted, by_promise, rounds, unfit
from hawker.node import Capacity, Resources
from hawker.sim.node.sim_worker import APP, config_of
from tests.gateway.fleet import Fleet, Loss, fleet_at
from tests.worker.hourglass import in_virtual_time

ROOM = Capacity(cpus=100, memory_mib=1000, disk_mib=1000, shared_ratio=1.0)


def node(number: int = 0, used: float | None = None, **fields: Any) -> Node:
    held = None if used is None else Resources(shared_cpus=int(used * 100), memory_mib=int(used * 1000))
    capacity = None if used is None else ROOM
    given = {"region": "mad", "labels": {"disk": "ssd"}, "drivers": ("crun",), **fields}
    return Node(id=NodeId(f"{number:08x}"), capacity=capacity, used=held, **given)


LIMITS = Limits()
ANY = Wanted(placement=Placement())


@pytest.mark.parametrize(
    ("fields", "wanted", "why"),
    [
        ({}, ANY, None),
        ({"alive": False}, ANY, "the node cannot be reached"),
        ({"cordoned": True}, ANY, "the node is cordoned"),
        ({"draining": True, "cordoned": True}, ANY, "the node is draining"),
        ({}, Wanted(placement=Placement(driver="crun", labels={"disk": "ssd"})), None),
        ({}, Wanted(placement=Placement(driver="microvm")), "the node does not offer the driver microvm"),
        ({}, Wanted(placement=Placement(labels={"disk": "hdd"})), "the node does not have the label disk=hdd"),
        ({}, Wanted(placement=Placement(), pinned=NodeId("0000000a")), "the order's volume is on node 0000000a"),
        ({}, Wanted(placement=Placement(), pinned=NodeId("00000000")), None),
        ({}, Wanted(placement=Placement(), avoid=frozenset({NodeId("00000000")})), "the order is not to go there"),
    ],
)
def test_nodes_not_asked_and_the_reason(fields: dict[str, Any], wanted: Wanted, why: str | None) -> None:
    assert unfit(node(**fields), wanted) == why


def test_a_small_region_is_asked_all_at_once() -> None:
    (only,) = rounds([node(number) for number in range(16)], LIMITS, 0.5)
    assert len(only) == 16
    assert list(rounds([], LIMITS, 0.5)) == []


def test_of_a_large_region_the_best_known_are_asked_with_some_others() -> None:
    nodes = [node(number, used=number / 100) for number in range(100)]
    assert by_promise(nodes[::-1], preferences()) == nodes
    parts = list(rounds(nodes, LIMITS, 0.5))
    assert [len(part) for part in parts] == [16] * 4
    assert [each.id for each in parts[0][:12]] == [each.id for each in nodes[:12]]
    asked = [each.id for part in parts for each in part]
    assert len(set(asked)) == len(asked)
    other = next(rounds(nodes, LIMITS, 0.1))
    assert other[:12] == parts[0][:12] and other[12:] != parts[0][12:]


def test_nodes_of_which_nothing_is_known_come_after_those_that_have_room() -> None:
    prefer = preferences(limits=Limits(ask_all_up_to=1, ask_best=1, ask_random=0, ask_rounds=3))
    nodes = by_promise([node(1), node(2, used=0.5), node(3, used=0.1)], prefer)
    parts = list(rounds(nodes, prefer.limits, 0.0))
    assert [part[0].id for part in parts] == ["00000003", "00000002", "00000001"]


def test_the_same_nodes_are_judged_once_for_each_kind_of_order() -> None:
    fields, one, other = Fields(preferences()), node(1, used=0.5), node(2, used=0.1, region="lhr")
    there = (one, other, node(3, cordoned=True))
    found = fields.of(there, "mad", ANY)
    assert (found.fit, found.passed_over) == ([one], {"00000003": "the node is cordoned"})
    assert fields.of(there, "mad", Wanted(placement=Placement())) is found
    assert fields.of(there, "lhr", ANY).fit == [other]
    assert not fields.of(there, "mad", Wanted(placement=Placement(driver="microvm"))).fit
    assert fields.of(there, "mad", ANY) is found
    assert fields.of((one, other), "mad", ANY).passed_over == {}


def test_nodes_that_may_change_where_they_are_are_looked_at_anew() -> None:
    fields, there = Fields(preferences()), [node(1), node(2)]
    assert len(fields.of(there, "mad", ANY).fit) == 2
    there[0] = node(1, alive=False)
    assert len(fields.of(there, "mad", ANY).fit) == 1


def test_no_more_kinds_of_orders_are_remembered_than_fit() -> None:
    fields, there = Fields(preferences()), (node(1),)
    for number in range(100):
        fields.of(there, "mad", Wanted(placement=Placement(labels={"n": str(number)})))
    assert len(fields._known) == 16


anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio
A, B = NodeId("0000000a"), NodeId("0000000b")


class Nodes:
    """Answers with the ask's app length as `fits`, once `gate` is open."""

    def __init__(self) -> None:
        self.calls: list[tuple[NodeId, int]] = []
        self.gates: dict[NodeId, anyio.Event] = {}
        self.bad: tuple[str, HawkerError] | None = None
        self.wrong: Callable[[NodeId], Exception | None] = lambda node: None

    def hold(self, node: NodeId) -> anyio.Event:
        return self.gates.setdefault(node, anyio.Event())

    def caller(self, node_id: NodeId, *, behalf: str) -> Any:
        nodes = self

        class Caller:
            async def call(self, route: Any, *, body: Any, timeout_s: float) -> Bids:
                nodes.calls.append((node_id, len(body.asks)))
                error = nodes.wrong(node_id)
                if error is not None:
                    raise error
                if node_id in nodes.gates:
                    await nodes.gates[node_id].wait()
                await anyio.lowlevel.checkpoint()
                asks = [msgspec.json.decode(each, type=BidAsk) for each in body.asks]
                if nodes.bad is not None and any(each.app == nodes.bad[0] for each in asks):
                    raise nodes.bad[1]
                return Bids(bids=tuple(Bid(fits=len(each.app)) for each in asks))

        return Caller()


def ask(app: str = "a") -> BidAsk:
    return BidAsk(app=app, machine=CreateMachineRequest(config=MachineConfig(image="web")))


def fits(found: dict[str, Bid | str]) -> dict[str, int | str]:
    return {node: bid if isinstance(bid, str) else bid.fits for node, bid in found.items()}


async def test_each_node_is_asked_once() -> None:
    nodes = Nodes()
    assert fits(await Bidding(nodes).collect([A, B], ask("abc"), 1.0)) == {A: 3, B: 3}
    assert sorted(nodes.calls) == [(A, 1), (B, 1)]
    assert await Bidding(nodes).collect([], ask(), 1.0) == {}


async def test_asks_that_wait_for_a_node_go_together() -> None:
    nodes = Nodes()
    bidding, gate = Bidding(nodes), nodes.hold(A)
    found: dict[str, int | str] = {}

    async def one(app: str) -> None:
        found[app] = fits(await bidding.collect([A], ask(app), 60.0))[A]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, "x")
        await anyio.wait_all_tasks_blocked()
        for length in range(2, 12):
            tasks.start_soon(one, "x" * length)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert found == {"x" * length: length for length in range(1, 12)}
    assert nodes.calls == [(A, 1), (A, 10)]


async def test_a_silent_node_is_not_waited_for() -> None:
    nodes = Nodes()
    nodes.hold(B)
    bidding = Bidding(nodes)
    assert fits(await bidding.collect([A, B], ask(), 1.0)) == {A: 1, B: SILENT}
    nodes.gates.clear()
    assert fits(await bidding.collect([A, B], ask(), 1.0)) == {A: 1, B: 1}


async def test_when_one_gives_up_those_that_went_with_it_are_asked_for_anew() -> None:
    nodes = Nodes()
    bidding, gate = Bidding(nodes), nodes.hold(A)
    found: list[dict[str, int | str]] = []

    async def one(deadline_s: float) -> None:
        found.append(fits(await bidding.collect([A], ask(), deadline_s)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, 1.0)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(one, 5.0)
        tasks.start_soon(one, 9.0)
        with anyio.move_on_after(6):
            await anyio.sleep_forever()
        gate.set()
    assert found == [{A: SILENT}, {A: SILENT}, {A: 1}]
    assert nodes.calls == [(A, 1), (A, 2), (A, 1)]


async def test_a_node_s_other_answer_is_told() -> None:
    nodes = Nodes()
    nodes.wrong = lambda node: Unavailable("cannot reach it") if node == B else None
    assert fits(await Bidding(nodes).collect([A, B], ask(), 1.0)) == {A: 1, B: "cannot reach it"}


@pytest.mark.parametrize("error", [BadRequest("the body is not JSON"), TooLarge("too large"), Unprocessable("asks")])
async def test_an_ask_that_makes_a_node_refuse_all_spoils_no_other(error: HawkerError) -> None:
    nodes = Nodes()
    bidding, gate = Bidding(nodes), nodes.hold(A)
    nodes.bad = ("evil", error)
    found: dict[str, int | str] = {}

    async def one(app: str) -> None:
        found[app] = fits(await bidding.collect([A], ask(app), 60.0))[A]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, "x")
        await anyio.wait_all_tasks_blocked()
        for app in ("xx", "evil", *("x" * length for length in range(3, 12))):
            tasks.start_soon(one, app)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert found == {"x" * length: length for length in range(1, 12)} | {"evil": str(error)}
    assert len(nodes.calls) <= 9


async def test_nothing_is_kept_of_what_is_over() -> None:
    nodes = Nodes()
    bidding = Bidding(nodes)
    nodes.hold(B)
    await bidding.collect([A, B], ask(), 1.0)
    await anyio.wait_all_tasks_blocked()
    assert bidding.under_way == 0


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
