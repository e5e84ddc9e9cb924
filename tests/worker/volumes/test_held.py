from pathlib import Path

import pytest

from hawker.config.storage import Mount
from hawker.errors import WrongState
from hawker.machine import State
from hawker.sim.node.world import MemoryWorld
from tests.worker.volumes.shelf import Shelf

pytestmark = pytest.mark.anyio


async def with_suspended(shelf: Shelf) -> str:
    volume_id = await shelf.written()
    machine_id = await shelf.worker.started(mounts=(Mount(volume=volume_id, path="/data"),))
    await shelf.worker.suspend(machine_id)
    await shelf.worker.reaches(machine_id, State.SUSPENDED)
    return volume_id


async def test_what_a_suspended_guest_has_is_neither_copied_nor_forked(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path, guests=True)
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await with_suspended(shelf)
        with pytest.raises(WrongState, match=r"cannot be copied while machine \w+, which has it, is suspended"):
            await shelf.snapshot(volume_id)
        with pytest.raises(WrongState, match="start or stop that first"):
            await shelf.create("other", source_volume_id=volume_id)


async def test_what_a_frozen_container_has_is(shelf: Shelf) -> None:
    await shelf.taken(await with_suspended(shelf))
