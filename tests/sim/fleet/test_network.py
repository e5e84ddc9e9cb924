"""Calls between nodes: what is asked runs once or not at all; who asked hears as much as the network lets through."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from hawker.api.contract.node import LIST_REGIONS, RegionList
from hawker.api.failure import ConnectionLost, Overdue, Unreachable
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.ids import NodeId
from hawker.sim.fleet.network import CallNetwork, NetworkCut, SimCaller, SimEndpoint, SimPeers
from hawker.sim.harness.loop import LoopClock

pytestmark = pytest.mark.anyio
ONE, TWO = NodeId("00000001"), NodeId("00000002")
ANSWER = RegionList(regions=(), nearest="mad", Regions=(), Nearest="mad")


class Desk:
    """Answers one route; `takes_s` is how long that takes."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.asked, self.takes_s = 0, 0.0

    async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
        self.asked += 1
        await self._clock.sleep(self.takes_s)
        return ANSWER


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[CallNetwork, Desk, SimEndpoint]]:
    clock = LoopClock(1)
    call_network, desk, handlers = CallNetwork(clock), Desk(clock), Handlers()
    handlers.on(LIST_REGIONS, desk.regions)
    async with anyio.create_task_group() as tasks:
        await tasks.start(call_network.serve)
        gate = SimEndpoint(clock=clock, handlers=handlers, tasks=tasks)
        call_network.peers[TWO] = gate
        yield call_network, desk, gate
        tasks.cancel_scope.cancel()


def caller(call_network: CallNetwork) -> SimCaller:
    return SimPeers(call_network, ONE).caller(TWO, behalf="ann")


async def test_a_call_is_answered() -> None:
    async with cluster() as (call_network, desk, _):
        assert await caller(call_network).call(LIST_REGIONS) is ANSWER
        assert desk.asked == 1


async def test_call_to_node_without_daemon_is_refused() -> None:
    async with cluster() as (call_network, _, __):
        del call_network.peers[TWO]
        with pytest.raises(Unreachable):
            await caller(call_network).call(LIST_REGIONS)


async def test_over_a_cut_nothing_is_done() -> None:
    async with cluster() as (call_network, desk, _):
        call_network.cuts.append(NetworkCut(frozenset({ONE}), frozenset({TWO}), both=False))
        for _ in range(6):
            with pytest.raises((Unreachable, Overdue)):
                await caller(call_network).call(LIST_REGIONS, timeout_s=5)
        assert desk.asked == 0


async def test_an_answer_that_is_lost_leaves_it_done() -> None:
    async with cluster() as (call_network, desk, _):
        call_network.mute = 1.0
        for _ in range(4):
            with pytest.raises((ConnectionLost, Overdue)):
                await caller(call_network).call(LIST_REGIONS, timeout_s=5)
        assert desk.asked == 4


async def test_a_late_request_comes_when_nobody_waits_any_more() -> None:
    async with cluster() as (call_network, desk, _):
        call_network.late.append(LIST_REGIONS.name)
        with pytest.raises((ConnectionLost, Overdue)):
            await caller(call_network).call(LIST_REGIONS, timeout_s=0.01)
        assert desk.asked == 0
        await call_network.clock.sleep(10)
        assert desk.asked == 1


async def test_caller_of_node_that_goes_down_hears_so() -> None:
    async with cluster() as (call_network, desk, gate):
        desk.takes_s = 5
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(ConnectionLost):
                    await caller(call_network).call(LIST_REGIONS)

            tasks.start_soon(ask)
            await call_network.clock.sleep(1)
            gate.over.set()
