from pathlib import Path

import pytest

from hawker.errors import NoRoom
from hawker.node import Capacity
from hawker.sim.node.sim_worker import config_of
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.room import overhead_mib, room_for
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
ROOM = Capacity(cpus=8, memory_mib=1024, disk_mib=100_000)


@pytest.mark.parametrize(("guests", "expected"), [(False, 0), (True, 100)])
async def test_a_node_sells_a_guests_memory_and_what_its_vmm_needs(tmp_path: Path, guests: bool, expected: int) -> None:
    async with MemoryWorld(tmp_path, guests=guests).open() as worker:
        deps = worker.parts.deps
        assert overhead_mib(deps) == expected
        assert room_for(deps, config_of(guest={"memory_mb": 300})).memory_mib == 300 + expected


async def test_admission_counts_it(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path, guests=True, room=ROOM)
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(guest={"memory_mb": 512})
        assert worker.record(machine_id).holds.memory_mib == 612
        with pytest.raises(NoRoom, match="short of 38 memory_mb"):
            await worker.create(guest={"memory_mb": 350})
        check_at_rest(stall)
