"""Flow `move`, between played hosts: whatever fails before the grant leaves the machine as it was."""

from typing import Any

import msgspec
import pytest

from hawker.api.contract.move import CANCEL_MOVE, MoveParams
from hawker.api.directory import Node
from hawker.errors import Moved, MoveUnderWay, NoDestination, WrongState
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State
from hawker.node import Capacity, Resources
from hawker.record.move import GRANTS, MoveRecord, MoveState
from hawker.record.node import used
from hawker.sim.harness.loop import eventually
from hawker.worker.lifecycle.move import candidates
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
ME = NodeId("00000001")


def node(number: int, *, free: int = 0, region: str = "mad", **fields: Any) -> Node:
    capacity = Capacity(cpus=1, memory_mib=free, disk_mib=free)
    return Node(id=NodeId(f"{number:08x}"), region=region, labels={}, capacity=capacity, used=Resources(), **fields)


def wish(**fields: str) -> MoveRecord:
    made = MoveRecord(
        id="01", app=AppName("a"), machine=MachineId("m"), region="mad", generation=2, created_at=0.0, updated_at=0.0
    )
    return msgspec.structs.replace(made, **fields)


def test_the_emptiest_node_of_the_region_that_takes_machines_is_asked_first() -> None:
    nodes = [node(1, free=9), node(2, free=1), node(3, free=5), node(4, free=7, cordoned=True)]
    nodes += [node(5, free=8, region="fra"), node(6, free=8, alive=False), node(7, free=8, draining=True)]
    assert candidates(nodes, ME, wish()) == ["00000003", "00000002"]
    assert candidates(nodes, ME, wish(region="fra")) == ["00000005"]
    assert candidates(nodes, ME, wish(wanted="00000005")) == ["00000005"]
    with pytest.raises(NoDestination, match="node 00000004 is silent"):
        candidates(nodes, ME, wish(wanted="00000004"))


async def aborted(fleet: PlayedFleet, move_id: str) -> MoveRecord:
    move = await fleet.ended(0, move_id)
    assert move.state is MoveState.ABORTED
    await fleet.worker(0).reaches(fleet.machine, State.STARTED)
    assert await fleet.settled() == []
    assert fleet.hosts[0].sight().running == {fleet.machine}
    return move


async def test_a_machine_goes_with_all_that_it_is_and_leaves_nothing() -> None:
    async with played_fleet() as fleet:
        before, held = fleet.worker(0).record(fleet.machine), used(fleet.hosts[0].world.store)
        move = await fleet.move(0, 1)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        after = await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert (after.id, after.name, after.version, after.generation) == (before.id, before.name, before.version, 2)
        events = fleet.worker(1).events(fleet.machine)
        assert [each for each in events if each.startswith("migrate/")] == [
            "migrate/preparing", "migrate/copying", "migrate/stopped", "migrate/started",
        ]  # fmt: skip
        assert used(fleet.hosts[0].world.store) != held
        with pytest.raises(Moved):
            await fleet.worker(0).get(fleet.machine)
        assert await fleet.settled() == []


async def test_a_node_that_is_away_is_no_destination_and_the_machine_never_stopped() -> None:
    async with played_fleet() as fleet:
        await fleet.hosts[1].kill()
        launched = fleet.worker(0).record(fleet.machine).running
        move = await aborted(fleet, (await fleet.move(0, 1)).id)
        assert "no node can take it" in move.reason
        assert fleet.worker(0).record(fleet.machine).running == launched


async def test_a_destination_that_falls_silent_in_the_copy_gives_the_machine_back() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: not fleet.hosts[0].sight().running, 60)
        await fleet.hosts[1].kill()
        found = await fleet.ended(0, move.id)
        assert found.state is MoveState.ABORTED
        assert found.back_at is not None and found.away_at is not None and found.back_at - found.away_at < 60
        assert await fleet.settled() == []


async def test_a_copy_that_differs_is_never_granted() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.moved_files.spoils = 1000
        move = await aborted(fleet, (await fleet.move(0, 1)).id)
        assert "is not what is at node" in move.reason


async def test_a_move_is_cancelled_until_it_is_granted() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        with pytest.raises(MoveUnderWay):
            await fleet.worker(0).stop(fleet.machine)
        await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
        await aborted(fleet, move.id)
        again = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.get(GRANTS, fleet.machine), 60, 0.0005)
        with pytest.raises(WrongState, match="owns it already"):
            await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=again.id))
        assert (await fleet.ended(0, again.id)).state is MoveState.DONE


async def test_a_machine_that_exits_during_the_copy_stays_and_is_restarted() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        await fleet.hosts[1].kill()
        fleet.hosts[0].world.host.end(MachineId(fleet.machine), 1)
        found = await aborted(fleet, move.id)
        assert found.away_at is None and "exited" in found.reason


async def test_a_block_that_was_copied_once_more_is_compared_once_more() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.moved_files.spoils = 10**9
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        fleet.hosts[0].world.host.end(MachineId(fleet.machine), 1)  # and writes nothing any more
        assert (await fleet.ended(0, move.id)).state is MoveState.ABORTED


async def test_a_volume_nobody_writes_to_is_not_copied_warm() -> None:
    async with played_fleet() as fleet:
        await fleet.worker(0).stop(fleet.machine)
        await fleet.worker(0).reaches(fleet.machine, State.STOPPED)
        with pytest.raises(WrongState, match="use `cold`"):
            await fleet.move(0, 1, mode="warm")
        move = await fleet.move(0, 1)
        assert move.mode == "cold"
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
