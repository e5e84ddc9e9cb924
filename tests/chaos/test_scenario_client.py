"""A customer's calls, on a worker in virtual time."""

import pytest

from hawker.chaos.scenario_client import ScenarioClient, exits_of
from hawker.config import MachineConfig
from hawker.machine import State
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
CONFIG = MachineConfig(image="hawker/hello")


async def test_a_machine_from_its_order_to_its_end(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        customer = ScenarioClient(worker.api, "shop")
        await customer.open()
        await customer.pull("hawker/hello")
        machine_id = await customer.create(CONFIG, "order", launch=False)
        assert await customer.create(CONFIG, "order", launch=False) == machine_id
        await customer.reaches(machine_id, State.STOPPED)
        await customer.start(machine_id)
        await customer.reaches(machine_id, State.STARTED)
        await customer.restart(machine_id)
        await worker.at_rest()
        await customer.update(machine_id, MachineConfig(image="hawker/hello", env={"A": "1"}))
        await worker.at_rest()
        await customer.signal(machine_id, "SIGUSR1")
        await customer.stop(machine_id)
        await worker.at_rest()
        assert [each.id for each in await customer.machines()] == [machine_id]
        exits = exits_of(await customer.machine(machine_id))
        assert [exit.requested_stop for exit in exits][:2] == [True, True]
        await customer.destroy(machine_id)
        await customer.reaches(machine_id, State.DESTROYED)
        assert [run.flow for run in await customer.runs(machine_id)][-1] == "create"
        await customer.prune()
        assert worker.parts.deps.images.find("hawker/hello") is None
