"""What a node says of a move to a node of another version, and to a caller without a right to it."""

import msgspec
import pytest

from hawker.api.contract.move_peer import IncomingMove
from hawker.api.grant import Everything
from hawker.errors import Forbidden
from hawker.handlers import moves
from hawker.permission import Action, Attempt
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


async def test_move_is_taken_back_only_by_who_may_write_its_app() -> None:
    class OnlyRead(Everything):
        def check(self, attempt: Attempt) -> None:
            if attempt != Attempt(Action.READ, app=attempt.app):
                raise Forbidden("read only")

    async with played_fleet() as fleet:
        move_id = await fleet.granted_to_a_lost_node()
        api = fleet.worker(0).api
        whole, api._grant = api._grant, OnlyRead(root=False)
        with pytest.raises(Forbidden, match="read only"):
            await fleet.reclaim(move_id)
        api._grant = whole
        assert (await fleet.reclaim(move_id)).state == "reclaiming"
