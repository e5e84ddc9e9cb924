"""Flow `surrender`, between played hosts: killed anywhere, a node that returns gives up what was taken back."""

import pytest

from hawker.machine import State
from hawker.node import Resources
from hawker.record.move import INCOMING, MOVED, IncomingState
from hawker.record.node import used
from hawker.sim.harness.loop import eventually
from hawker.store.contract import Reader
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

PLACES = ("end before", "end after", "drop before", "drop inside", "drop after")


@pytest.mark.parametrize("place", PLACES)
async def test_a_node_that_is_killed_again_gives_up_what_was_taken_back(place: str) -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        fleet.forget_acknowledged()
        await fleet.reclaim(move_id, accept_loss=True, now=True)
        await fleet.ended(0, move_id)
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        await fleet.dies(1, f"surrender.{place}")
        await eventually(fleet._clock, lambda: _states(fleet.hosts[1].world.store) == [IncomingState.REFUSED], 600)
        assert await fleet.settled() == []
        store = fleet.hosts[1].world.store
        post = store.get(MOVED, fleet.machine)
        assert post is not None and post.to == fleet.id(0) and used(store) == Resources()


def _states(store: Reader) -> list[IncomingState]:
    return [each.state for _, each in store.scan(INCOMING)]
