"""Runs of a fleet: an id does not say which node has the run, so the nodes are asked."""

from hawker.api.caller import Caller
from hawker.api.contract.run import ABORT_RUN, GET_RUN, RETRY_RUN, Run, RunParams
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery, Unary
from hawker.errors import NotFound, Unavailable
from hawker.gateway.fan_out import FanOut
from hawker.gateway.forwarding import Forwarding
from hawker.ids import NodeId


class FleetRuns:
    def __init__(self, passing: Forwarding, asking: FanOut) -> None:
        self._passing = passing
        self._asking = asking

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_RUN, self.get)
        handlers.on(RETRY_RUN, self.retry)
        handlers.on(ABORT_RUN, self.abort)

    async def get(self, call: Call[RunParams, NoQuery, None]) -> Run:
        _, run = await self._found(call)
        return run

    async def retry(self, call: Call[RunParams, NoQuery, None]) -> Run:
        return await self._at(RETRY_RUN, call)

    async def abort(self, call: Call[RunParams, NoQuery, None]) -> Run:
        return await self._at(ABORT_RUN, call)

    async def _at(self, route: Unary[RunParams, NoQuery, None, Run], call: Call[RunParams, NoQuery, None]) -> Run:
        node, _ = await self._found(call)
        return await self._passing.unary_at(node, route, call)

    async def _found(self, call: Call[RunParams, NoQuery, None]) -> tuple[NodeId, Run]:
        async def one(caller: Caller) -> Run:
            return await caller.call(GET_RUN, params=call.params)

        nodes = [node.id for node in self._passing.owners.directory.nodes()]
        asked = await self._asking.first(nodes, call.caller, one)
        for found in asked.answers:
            return found
        if asked.silent:
            raise Unavailable(f"the run is at no node that could be asked: {asked.silent[0][1]}")
        raise NotFound(f"run {call.params.run_id:.40} not found")
