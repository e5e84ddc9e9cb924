"""Flow `receive`, between played hosts: what was held is given back."""

import pytest

from hawker.ids import AppName, NodeId
from hawker.node import Resources
from hawker.record.move import INCOMING, IncomingRecord, IncomingState
from hawker.record.node import used
from hawker.sim.harness.loop import eventually
from hawker.worker.moves.receive import under_way
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


def incoming(state: IncomingState = IncomingState.READY) -> IncomingRecord:
    return IncomingRecord(
        move="01", source=NodeId("00000001"), app=AppName("a"), generation=2, state=state, created_at=0.0
    )


def test_a_move_that_ended_is_not_under_way() -> None:
    assert under_way([incoming(state) for state in IncomingState]) == 4


def states(fleet: PlayedFleet, number: int) -> list[IncomingState]:
    return [record.state for _, record in fleet.hosts[number].world.store.scan(INCOMING)]


async def test_room_is_held_until_the_source_gives_the_move_up() -> None:
    async with played_fleet() as fleet:
        store = fleet.hosts[1].world.store
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: states(fleet, 1), 60)
        assert used(store).memory_mib > 0 and used(store).disk_mib >= 1024
        await fleet.hosts[0].kill()
        await fleet._clock.sleep(120)
        assert states(fleet, 1) != [IncomingState.DROPPED]  # a source that is silent has given up nothing
        await fleet.hosts[0].begin(fleet._tasks)
        await fleet.ended(0, move.id)
        assert await fleet.settled() == []


async def test_a_destination_that_was_dropped_holds_nothing() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.moved_files.spoils = 1000
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await eventually(fleet._clock, lambda: states(fleet, 1) == [IncomingState.DROPPED], 60)
        assert used(fleet.hosts[1].world.store) == Resources()
        assert not fleet.hosts[1].sight().drafts
