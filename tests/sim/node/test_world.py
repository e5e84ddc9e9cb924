import pytest

from hawker.errors import Unavailable
from hawker.machine import State
from hawker.sim.node.crash_points import Death
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_a_life_that_is_left_leaves_machines_running(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.crash()
    async with stall.open() as worker:
        assert worker.record(machine_id).state is State.STARTED
        check_at_rest(stall)


async def test_a_death_ends_the_life_and_nothing_but_death_comes_out(stall: MemoryWorld) -> None:
    stall.fuse.burns_at = 1
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.app()
            await worker.started()


async def test_a_crash_keeps_as_much_as_is_said(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.crash(keep=0)
    async with stall.open() as worker:
        assert worker.record(machine_id).state is not State.STARTED, "the launch was an ordered commit"
        await worker.reaches(machine_id, State.STARTED)
        check_at_rest(stall)


async def test_after_a_reboot_a_machine_that_ran_is_known_to_be_lost(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "no"})
    stall.crash()
    stall.reboot()
    async with stall.open() as worker:
        assert worker.record(machine_id).state is State.STOPPED
        await worker.at_rest()
        check_at_rest(stall)


async def test_what_breaks_in_a_life_is_raised_as_it_is(stall: MemoryWorld) -> None:
    with pytest.raises(Unavailable):
        async with stall.open():
            raise Unavailable("no")
