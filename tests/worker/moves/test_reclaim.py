"""Flow `reclaim`, between played hosts: killed anywhere, it goes on, and never has two owners."""

import pytest

from hawker.errors import Moved, MoveUnderWay
from hawker.machine import State
from hawker.record.move import MoveState
from hawker.worker.moves.reclaim import PATIENCE_S
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

PLACES = ("wait before", "wait after", "restore before", "restore inside", "restore after", "reopen before")


@pytest.mark.parametrize("place", PLACES)
async def test_a_reclaim_that_is_killed_goes_on(place: str) -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        fleet.forget_acknowledged()
        await fleet.reclaim(move_id, accept_loss=True, now=True)
        await fleet.dies(0, f"reclaim.{place}")
        assert (await fleet.ended(0, move_id)).state is MoveState.ABORTED
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []


async def test_a_reclaim_waits_until_a_node_that_was_cut_off_must_have_heard() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        fleet.forget_acknowledged()
        began = fleet._clock.monotonic()
        await fleet.reclaim(move_id, accept_loss=True)
        with pytest.raises((MoveUnderWay, Moved)):
            await fleet.worker(0).start(fleet.machine)
        await fleet.ended(0, move_id)
        assert PATIENCE_S - 5 <= fleet._clock.monotonic() - began <= PATIENCE_S + 15
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []


async def test_a_reclaim_of_what_nobody_heard_of_notes_no_more_what_the_machine_writes() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.granted_to_a_lost_node()
        assert fleet.hosts[0].world.moved_files.watched
        await fleet.reclaim(move_id, now=True)
        await fleet.ended(0, move_id)
        assert not fleet.hosts[0].world.moved_files.watched
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []
