"""The turn of an app's moves, which the app's home keeps: what the source of a move asks it."""

from types import NoneType

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.move import MoveParams
from hawker.api.route import Tag, Unary
from hawker.errors import Forbidden, NotFound
from hawker.permission import Action


class TurnRequest(Request, frozen=True, kw_only=True):
    """The app's home is asked to let this move, whose source is the node `node`, have the app's turn. With
    `instead_of`, a move's id, the asker knows from the source of that move that it has ended."""

    app: str
    """The name of the app whose turn it is."""
    node: str
    instead_of: str | None = None


class TurnQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The move gives up the turn of the app of the name `app`."""

    app: str


class MoveTurn(Answer, frozen=True, kw_only=True):
    """Whose turn it is now: the move, and its source. Without a `move` it is nobody's for a minute, for the moves of
    this `node` have had it for as long as one node's may."""

    move: str
    node: str


TAKE_TURN = Unary(
    name="take_move_turn",
    method="PUT",
    path="/internal/v1/moves/{move_id}/turn",
    params=MoveParams,
    body=TurnRequest,
    response=MoveTurn,
    tag=Tag.NODE,
    summary="Let a move have the turn of its app, of which this node is the home, for ten minutes, or say whose it is",
    errors=(Forbidden, NotFound),
    action=Action.WRITE,
    timeout_s=5.0,
)

LEAVE_TURN = Unary(
    name="leave_move_turn",
    method="DELETE",
    path="/internal/v1/moves/{move_id}/turn",
    params=MoveParams,
    query=TurnQuery,
    response=NoneType,
    tag=Tag.NODE,
    summary="Let other moves of an app have the turn of this one",
    action=Action.WRITE,
    timeout_s=5.0,
)

TURN_ROUTES = (TAKE_TURN, LEAVE_TURN)
