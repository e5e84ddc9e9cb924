"""Collecting bids: together where they wait for the same node, and never longer than the deadline."""

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import Bid, BidAsk, Bids
from hawker.config import MachineConfig
from hawker.errors import Unavailable
from hawker.ids import NodeId
from hawker.market.bids import SILENT, Bidding
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio
A, B = NodeId("0000000a"), NodeId("0000000b")


class Nodes:
    """Answers with the ask's app length as `fits`, once `gate` is open."""

    def __init__(self) -> None:
        self.calls: list[tuple[NodeId, int]] = []
        self.gates: dict[NodeId, anyio.Event] = {}
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


async def test_nothing_is_kept_of_what_is_over() -> None:
    nodes = Nodes()
    bidding = Bidding(nodes)
    nodes.hold(B)
    await bidding.collect([A, B], ask(), 1.0)
    await anyio.wait_all_tasks_blocked()
    assert bidding.under_way == 0
