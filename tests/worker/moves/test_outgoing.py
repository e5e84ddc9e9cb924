"""The record of a move at its source: what was granted is not given back."""

import pytest

from hawker.errors import NotFound
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.move import GRANTS, MOVES, MoveState
from hawker.worker.moves.outgoing import change_move, give_back, is_granted_by
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_move_that_was_granted_is_not_given_back_and_one_that_was_not_starts_what_ran() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.granted_to_a_lost_node()
        store, deps = fleet.hosts[0].world.store, fleet.worker(0).parts.deps
        move = store.get(MOVES, move_id)
        assert move is not None and is_granted_by(store, move)
        await store.write(lambda tx: give_back(tx, deps, move_id, "never"))
        assert store.get(MOVES, move_id) == move

        await store.write(lambda tx: tx.delete(GRANTS, move.unit))
        await store.write(lambda tx: give_back(tx, deps, move_id, "it stays"))
        given = store.get(MOVES, move_id)
        assert given is not None and (given.state, given.reason) == (MoveState.ABORTED, "it stays")
        record = store.get(MACHINES, fleet.machine)
        assert record is not None and record.state is State.STARTING


async def test_a_move_that_nobody_knows_is_not_changed() -> None:
    async with played_fleet() as fleet:
        deps = fleet.worker(0).parts.deps
        with pytest.raises(NotFound, match="move 01NONE not found"):
            await deps.store.write(lambda tx: change_move(tx, deps, "01NONE", reason="lost") and None)
