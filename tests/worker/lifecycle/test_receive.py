"""Flow `receive`, between played hosts: what was held is given back, and what was on disk is not copied again."""

import pytest

from hawker.api.contract.move import OutgoingMove
from hawker.errors import NotFound, Unavailable
from hawker.ids import AppName, NodeId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.move import INCOMING, IncomingRecord, IncomingState, MoveState
from hawker.record.node import used
from hawker.sim.harness.loop import eventually
from hawker.worker.lifecycle.receive import over, under_way
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


def incoming(state: IncomingState = IncomingState.READY) -> IncomingRecord:
    return IncomingRecord(
        move="01", source=NodeId("00000001"), app=AppName("a"), generation=2, state=state, created_at=0.0
    )


def test_only_the_sources_own_word_ends_a_move() -> None:
    assert over(Unavailable("it is away"), incoming()) == ""
    assert over(OutgoingMove(state=MoveState.COPYING, generation=2), incoming()) == ""
    assert over(OutgoingMove(state=MoveState.GRANTED, generation=2), incoming()) == ""
    assert "aborted" in over(OutgoingMove(state=MoveState.ABORTED, generation=2), incoming())
    assert over(OutgoingMove(state=MoveState.COPYING, generation=4), incoming()) != ""
    assert "no such move" in over(NotFound("move not found"), incoming())


def test_what_ended_is_not_under_way() -> None:
    assert under_way([incoming(state) for state in IncomingState]) == 3


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
        fleet.hosts[1].world.moved_files.spoils = 1
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await eventually(fleet._clock, lambda: states(fleet, 1) == [IncomingState.DROPPED], 60)
        assert used(fleet.hosts[1].world.store) == Resources()
        assert fleet.hosts[1].sight().drafts == 0


async def test_a_copy_goes_on_after_the_destinations_power_failed() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        await fleet.again(1, kept=0.0, power=True)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []
