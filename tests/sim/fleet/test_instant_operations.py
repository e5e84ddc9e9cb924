from pathlib import Path

import pytest

from hawker.api.routes import GET_MACHINE, MachineParams
from hawker.errors import NotFound
from hawker.machine import State
from hawker.node import Capacity, Resources
from hawker.sim.fleet.light import LightWorld
from hawker.sim.node.fake_images import FakeRegistry
from hawker.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def test_each_operation_is_over_when_it_is_answered_and_room_is_counted() -> None:
    room = Capacity(cpus=4, memory_mib=1024, disk_mib=10_000)
    place = LightWorld(MemoryStore(), Path("node"), room=room)
    place.registry = FakeRegistry()
    async with place.open() as worker:
        table, store = worker.parts.deps.table, worker.store
        await worker.app()
        machine = (await worker.create()).id
        assert worker.machines()[0].state is State.STARTED and table.used(store).memory_mib > 0
        await worker.stop(machine)
        assert worker.machines()[0].state is State.STOPPED and table.used(store) == Resources()
        await worker.start(machine)
        assert worker.machines()[0].state is State.STARTED
        await worker.destroy(machine, force=True)
        assert worker.machines() == [] and table.used(store) == Resources()
        with pytest.raises(NotFound):
            await worker.api.call(GET_MACHINE, params=MachineParams(app_name="nothing", machine_id=machine))
        await worker.create(order={"skip_launch": True})
        assert worker.machines()[0].state is State.STOPPED
