"""Flow `deliver`, between played hosts: after the grant the new owner hears of it, or has refused it for ever."""

import pytest

from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.move import GRANTS, MOVED, MoveState
from hawker.sim.harness.loop import eventually
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_node_that_refuses_gives_the_machine_back_under_a_generation_of_its_own() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].refuses = True
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert not fleet.hosts[0].world.moved_files.watched, "nobody needs to know what it writes any more"
        assert await fleet.settled() == [] and move.state is MoveState.ABORTED
        assert "refused it" in move.reason
        record = fleet.hosts[0].world.store.get(MACHINES, fleet.machine)
        assert record is not None and record.generation == 3
        assert fleet.hosts[0].world.store.get(GRANTS, fleet.machine) is None
        assert fleet.hosts[0].world.store.get(MOVED, fleet.machine) is None


async def test_a_delivery_goes_on_over_deaths_of_both() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.get(GRANTS, fleet.machine), 60, 0.0005)
        await fleet.hosts[1].kill(kept=0.0)
        await fleet.again(0, kept=0.0, power=True)
        await fleet.hosts[1].begin(fleet._tasks)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert await fleet.settled() == []
        assert fleet.hosts[1].sight().running == {fleet.machine}
