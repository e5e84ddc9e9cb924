"""A watcher finds nothing at a node that is well, and says what it sees at one that is not."""

from typing import Any, cast

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE
from hawker.api.in_process import InProcessCaller
from hawker.chaos.kill_runner import StateWatcher
from hawker.errors import NotFound
from hawker.machine import State
from hawker.sim.node.sim_worker import APP
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_life_without_findings(stall: MemoryWorld) -> None:
    watcher = StateWatcher(stall.clock, APP)
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        await watcher.look(worker.api)
        await worker.stop(machine_id)
        await watcher.look(worker.api)
        await worker.at_rest()
        await watcher.look(worker.api)
    assert (watcher.looks, dict(watcher.found)) == (3, {})


async def test_a_state_without_its_event_is_seen(stall: MemoryWorld) -> None:
    watcher = StateWatcher(stall.clock, APP)
    async with stall.open() as worker:
        await worker.app()
        record = worker.record(await worker.stopped())
        changes = worker.parts.deps.table
        await worker.store.write(lambda tx: changes.change(tx, record, state=State.STARTED))
        await watcher.look(worker.api)
    assert [found.about for found in watcher.found] == [record.id]


class Blind:
    """Lists machines, and knows none by its id."""

    def __init__(self, caller: InProcessCaller) -> None:
        self._caller = caller

    async def call(self, route: Any, **arguments: Any) -> Any:
        if route is GET_MACHINE:
            raise NotFound("machine not found")
        return await self._caller.call(route, **arguments)


async def test_a_machine_in_the_list_only_is_seen(stall: MemoryWorld) -> None:
    watcher = StateWatcher(stall.clock, APP)
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.stopped()
        await watcher.look(cast("Caller", Blind(worker.api)))
    assert [(found.about, found.what) for found in watcher.found] == [
        (machine_id, "was in the list, and is not there by its id")
    ]
