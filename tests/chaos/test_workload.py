"""Customers at a node that nothing happens to: in virtual time, over a worker that is whole."""

from pathlib import Path

import anyio
import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.machine import DELETE_MACHINE, DeleteMachineQuery
from hawker.chaos.chance import SeededChance
from hawker.chaos.endings import ToldExits
from hawker.chaos.tally import APP, CallVerdict, MeasuredCalls, SoakTally, params_of
from hawker.chaos.workload import OWN_LIMIT, SoakClient, SoakReader
from hawker.proof.promises import Promises
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
OPEN_S = 120.0
HARMLESS = frozenset({"create_machine", "get_machine", "list_machines", "list_events", "set_metadata"})


class Counter:
    """The node of one test: who is called, and what was noted."""

    def __init__(self, client: Caller) -> None:
        self.client = client
        self.noted: list[str] = []

    def note(self, what: str) -> None:
        self.noted.append(what)


class Street:
    """Two customers and an onlooker before one counter."""

    def __init__(self, worker: SimWorker, directory: Path) -> None:
        self.clock = worker.parts.deps.clock
        self.counter, self.tally, self.promises = Counter(worker.api), SoakTally(), Promises()
        self.calls = MeasuredCalls(self.counter, self.clock, self.tally)
        endings = ToldExits(directory, SeededChance(1), networked=True)
        self.customers = [
            SoakClient(f"c{number}", self.calls, self.promises, endings, SeededChance(1, number), networked=True)
            for number in range(2)
        ]
        self.onlooker = SoakReader(self.calls, self.promises, SeededChance(1, 9))

    async def busy_day(self) -> None:
        await self.counter.client.call(CREATE_APP, body=CreateAppRequest(name=APP))
        closed = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for customer in self.customers:
                tasks.start_soon(customer.shop, closed, self.clock)
            tasks.start_soon(self.onlooker.look, closed, self.clock)
            await self.clock.sleep(OPEN_S)
            closed.set()


async def test_at_a_node_that_keeps_its_word_nothing_is_found(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path)
    async with stall.open() as worker:
        lab = Street(worker, tmp_path)
        await lab.busy_day()
        await worker.at_rest()
        assert lab.counter.noted == [] and lab.promises.broken(stall.store) == []
        assert all(lab.tally.calls[operation][CallVerdict.OK] > 0 for operation in HARMLESS)
        assert len(lab.tally.calls) > 12, "every operation has its turn"
        assert sum(1 for _ in stall.store.scan(MACHINES)) <= 2 * OWN_LIMIT


async def test_a_machine_that_somebody_else_destroyed_is_missed(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path)
    async with stall.open() as worker:
        lab = Street(worker, tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lab.busy_day)
            await lab.clock.sleep(OPEN_S / 2)
            listed = await lab.calls.machines()
            for machine_id in listed.value or ():
                query = DeleteMachineQuery(force=True)
                await lab.calls.call(DELETE_MACHINE, params=params_of(machine_id), query=query)
        assert any("is not" in what for what in lab.counter.noted)
        await worker.at_rest()
        assert lab.promises.broken(stall.store) != []
