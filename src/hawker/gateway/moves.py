"""Moves of a fleet: an id does not say which node a move is from, so the nodes are asked."""

from hawker.api.caller import Caller
from hawker.api.contract.move import CANCEL_MOVE, GET_MOVE, LIST_MOVES, ListMovesQuery, Move, MoveList, MoveParams
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.errors import NotFound, Unavailable
from hawker.gateway.fan_out import FanOut
from hawker.gateway.forwarding import Forwarding
from hawker.ids import NodeId
from hawker.permission import Action, Attempt


class FleetMoves:
    def __init__(self, passing: Forwarding, asking: FanOut) -> None:
        self._forwarding = passing
        self._fan_out = asking

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_MOVES, self.list)
        handlers.on(GET_MOVE, self.get)
        handlers.on(CANCEL_MOVE, self.cancel)

    async def list(self, call: Call[NoParams, ListMovesQuery, None]) -> MoveList:
        async def ask(caller: Caller) -> MoveList:
            return await caller.call(LIST_MOVES, query=call.query)

        nodes = (node.id for node in self._forwarding.owners.directory.nodes())
        asked = await self._fan_out.every(nodes, call.caller, ask)
        asked.some("moves")
        call.metadata.missing_regions = asked.regions
        found = [move for _, answer in asked.answers for move in answer.moves]
        shown = [each for each in found if call.grant.permits(Attempt(Action.READ, app=each.app))]
        return MoveList(moves=tuple(sorted(shown, key=lambda move: move.id, reverse=True)))

    async def get(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        _, move = await self._found(call)
        return move

    async def cancel(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        node, move = await self._found(call)
        call.grant.check(Attempt(Action.WRITE, app=move.app))
        return await self._forwarding.unary_at(node, CANCEL_MOVE, call)

    async def _found(self, call: Call[MoveParams, NoQuery, None]) -> tuple[NodeId, Move]:
        async def one(caller: Caller) -> Move:
            return await caller.call(GET_MOVE, params=call.params)

        nodes = [node.id for node in self._forwarding.owners.directory.nodes()]
        asked = await self._fan_out.first(nodes, call.caller, one)
        for node, move in asked.answers:
            if call.grant.permits(Attempt(Action.READ, app=move.app)):
                return node, move
        if asked.silent:
            raise Unavailable(f"the move is at no node that could be asked: {asked.silent[0][1]}")
        raise NotFound(f"move {call.params.move_id:.40} not found")
