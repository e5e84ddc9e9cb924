"""A worker begins in an order in which nothing acts on what is not known yet."""

import pytest

from hawker.machine import State
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def test_an_exit_that_was_missed_is_recorded_before_the_first_call_is_answered(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.host.end(worker.record(machine_id).id, 0)
    stall.crash()
    async with stall.open() as worker:
        assert worker.record(machine_id).state is State.STOPPED
        assert (await worker.exits(machine_id))[0].request is not None


async def test_joined_parts_share_one_table_and_one_room(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        assert worker.parts.changes is worker.parts.deps.table.changes
        assert worker.parts.room() == stall.room


async def test_without_a_reconciler_nobody_tidies_up(stall: MemoryWorld) -> None:
    stall.reconciles = False
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        stall.networks.plugged["stray"] = stall.networks.plugged[worker.record(machine_id).id]  # type: ignore[index]
        await stall.clock.sleep(600)
        assert "stray" in stall.networks.plugged
