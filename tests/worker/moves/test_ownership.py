"""Whether what came is a node's own still: asked once in the life of a daemon, and answered without its granter."""

import pytest

from hawker.errors import Moved, WrongState
from hawker.machine import State
from hawker.record.move import MoveState
from hawker.sim.fleet.network import PassingCall
from hawker.sim.harness.loop import eventually
from hawker.worker.moves.ownership import came_by, is_given_up, look, taken_back
from hawker.worker.moves.sweep import MoveSweep
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_node_whose_granter_is_gone_starts_what_nobody_else_has() -> None:
    async with played_fleet() as fleet:
        assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.DONE
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert came_by(fleet.hosts[0].world.store, fleet.machine) is None
        await fleet.hosts[1].kill(power=True)
        await fleet.hosts[0].kill(power=True)
        await fleet.hosts[1].begin(fleet._tasks)
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert len(fleet.worker(1).parts.deps.claims) == 1
        assert await fleet.settled() == []


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_node_does_not_wait_for_a_granter_that_was_forgotten(forgotten: bool) -> None:
    async with played_fleet() as fleet:
        assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.DONE
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        granter = fleet.hosts[0]
        await granter.kill(power=True)
        granter.forgotten = forgotten
        deps = fleet.worker(1).parts.deps
        deps.claims.clear()
        began = fleet._clock.monotonic()
        assert await taken_back(deps, fleet.machine) is None and len(deps.claims) == 1
        waited = fleet._clock.monotonic() - began
        assert waited < 3 if forgotten else waited > 8
        assert await fleet.settled() == []


async def test_a_granter_that_was_forgotten_and_returns_is_asked_again_and_has_it_back() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        fleet.forget_acknowledged()
        await fleet.reclaim(move_id, accept_loss=True, now=True)
        await fleet.ended(0, move_id)
        await fleet.hosts[0].kill(power=True)
        fleet.hosts[0].forgotten = True
        await fleet.hosts[1].begin(fleet._tasks)
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        deps = fleet.worker(1).parts.deps
        came = came_by(deps.store, fleet.machine)
        assert came is not None and not came.settled
        await fleet.hosts[0].begin(fleet._tasks)
        await look(deps)
        assert came_by(deps.store, fleet.machine) is None or is_given_up(deps.store, came)
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        await eventually(fleet._clock, lambda: not fleet.hosts[1].sight().running, 60)
        assert fleet.hosts[0].sight().running == {fleet.machine}


async def test_a_node_uses_nothing_that_was_taken_back() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        fleet.forget_acknowledged()
        await fleet.reclaim(move_id, accept_loss=True, now=True)
        await fleet.hosts[1].begin(fleet._tasks)
        gone = await taken_back(fleet.worker(1).parts.deps, fleet.machine)
        assert (
            gone is not None and isinstance(gone.error, Moved) and "was taken back by node 00000001" in str(gone.error)
        )
        await fleet.ended(0, move_id)
        assert await fleet.settled() == []
        assert fleet.hosts[0].sight().running == {fleet.machine}


async def test_a_node_asks_no_more_once_its_granter_can_take_nothing_back() -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        await look(fleet.worker(1).parts.deps)
        came = came_by(fleet.worker(1).store, fleet.machine)
        assert came is not None and not came.settled
        await fleet.hosts[0].age()
        granter = fleet.worker(0).parts
        await MoveSweep(granter.deps, granter.scheduled_moves).sweep()
        await fleet.again(0, kept=0, power=True)
        await look(fleet.worker(1).parts.deps)
        came = came_by(fleet.worker(1).store, fleet.machine)
        assert came is not None and came.settled

        asked: list[str] = []

        def hear(call: PassingCall) -> None:
            asked.append(call.route)

        fleet._fleet.call_network.hears = hear
        await fleet.hosts[1].kill(kept=0, power=True)
        with pytest.raises(WrongState, match="is not here any more"):
            await fleet.reclaim(move.id, accept_loss=True)
        fleet._fleet.call_network.unplugged.add(fleet.id(0))
        await fleet.hosts[1].begin(fleet._tasks)
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        deps = fleet.worker(1).parts.deps
        assert await taken_back(deps, fleet.machine) is None
        await look(deps)
        assert "show_outgoing_move" not in asked and not deps.claims
        fleet._fleet.call_network.unplugged.clear()
        assert await fleet.settled() == []
