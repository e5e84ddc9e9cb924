"""Flow `receive`, between played hosts: what was held is given back."""

import pytest

from hawker.api.contract.move import MOVE_MACHINE, MoveRequest
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import MACHINES, rests
from hawker.record.move import INCOMING, IncomingRecord, IncomingState, MoveState
from hawker.record.node import TAKEOVERS, used
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import params
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


async def test_scheduled_machine_that_has_run_in_this_period_waits_for_the_next_one_where_it_moved() -> None:
    async with played_fleet() as fleet:
        first, second, clock = fleet.worker(0), fleet.worker(1), fleet._clock
        job = await first.started(schedule="hourly", restart={"policy": "no"})
        created_at = first.record(job).created_at
        await clock.sleep(4000)
        fleet.hosts[0].world.host.end(MachineId(job), 0)
        ended = (await first.reaches(job, State.STOPPED)).running
        assert ended is not None and ended.exit is not None
        await first.api.call(MOVE_MACHINE, params=params(job), body=MoveRequest(to=fleet.id(1)))
        await eventually(clock, lambda: fleet.hosts[1].world.store.get(MACHINES, job), 60)
        await clock.sleep(created_at + 7200 - clock.now() - 1)
        assert second.record(job).state is State.STOPPED and second.record(job).running == ended
        await clock.sleep(2)
        await second.reaches(job, State.STARTED)
        assert second.events(job).count("start/started") == 2


async def test_machine_that_rests_rests_where_it_moved() -> None:
    async with played_fleet() as fleet:
        first, machine_id = fleet.worker(0), MachineId(fleet.machine)
        running = first.record(machine_id).running
        assert running is not None
        await first.parts.operations.rest(machine_id, running.instance_id, suspend=False)
        await first.reaches(machine_id, State.STOPPED)
        assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.DONE
        assert rests(fleet.worker(1).record(machine_id))


async def test_machine_brings_along_what_failover_remembers_of_it() -> None:
    async with played_fleet() as fleet:
        known = await fleet.failed_over()
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert move.state is MoveState.DONE and fleet.remembers(1) == known
        assert fleet.hosts[1].world.store.count(TAKEOVERS) == 1
        assert await fleet.settled() == []
