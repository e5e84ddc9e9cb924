"""What a node says of a move to a node of another version."""

import msgspec
import pytest

from hawker.api.contract.move_peer import IncomingMove
from hawker.handlers import moves
from hawker.record.move import IncomingRecord, MoveState
from tests.sim.moves.fleets import played_fleet

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("accept_loss", [True, False])
async def test_a_node_that_knows_of_no_losses_is_given_none(accept_loss: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said = moves._incoming

    def older(record: IncomingRecord) -> IncomingMove:
        return msgspec.structs.replace(said(record), losses=False)

    monkeypatch.setattr(moves, "_incoming", older)
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move(0, 1, accept_loss=accept_loss)).id)
        assert (move.state is MoveState.ABORTED and "version is older" in move.reason) is accept_loss
        if accept_loss:
            assert move.copied_bytes == 0 and move.away_at is None
        else:
            assert move.state is MoveState.DONE
