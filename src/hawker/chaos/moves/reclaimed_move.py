"""A move whose destination is lost with its machine running: the source takes the machine back, the lost node returns.
One of the two dies on the way. Nobody may write meanwhile: what the destination acknowledges is given up.
"""

from anyio.to_thread import run_sync

from hawker.api.contract.cluster import LIST_NODES
from hawker.api.contract.move import RECLAIM_MOVE, MoveParams, TakeBackRequest
from hawker.chaos.fleet.real_fleet import LabNode
from hawker.chaos.moves.moving_machine import MovingMachine
from hawker.failpoint import LISTING
from hawker.gossip.contract import Fate

_AT_SOURCE, _AT_RETURN = "reclaim.", "surrender."


class ReclaimedMove:
    """`place` is where a daemon dies: of the source, which has been told so, or of the destination, which is told when
    it returns; empty when none does."""

    def __init__(self, moving: MovingMachine, source: LabNode, destination: LabNode, place: str) -> None:
        self._moving = moving
        self._source = source
        self._destination = destination
        self._place = place
        self._source_dies = place.startswith(_AT_SOURCE)

    async def lose_and_take_back(self, move_id: str) -> None:
        """The move is done. Once this returns the machine runs at its source and both nodes are idle. Raises
        `HawkerError`, also when nobody dies at the place."""
        await run_sync(self._destination.daemon.lose)
        await self._moving.patiently(self._is_lost)

        async def order() -> bool:
            await self._revive()
            wish = TakeBackRequest(accept_loss=True, now=True)
            await self._moving.broker.call(RECLAIM_MOVE, params=MoveParams(move_id=move_id), body=wish)
            return True

        await self._moving.patiently(order)
        await self._moving.patiently(self._has_died)
        await self._revive()
        await self._moving.patiently(self._moving.runs)
        await run_sync(self._return)
        await self._moving.patiently(self._moving.everybody_is_here)
        await self._moving.patiently(self._has_given_up)

    async def _is_lost(self) -> bool:
        nodes = (await self._moving.broker.call(LIST_NODES)).nodes
        return any(node.id == self._destination.id and node.state == Fate.DOWN for node in nodes)

    async def _revive(self) -> None:
        if not self._source.daemon.alive:
            self._source_dies = False
            await run_sync(self._source.restart)

    async def _has_died(self) -> bool:
        """Of the source: it has, or is not to."""
        return not self._source_dies or not self._source.daemon.alive

    def _return(self) -> None:
        daemon = self._destination.daemon
        if self._place.startswith(_AT_RETURN):
            daemon.launch(failpoint=self._place).ended()
        daemon.launch(failpoint=None if self._place else LISTING).wait_ready()

    async def _has_given_up(self) -> bool:
        return not self._moving.has_file(self._destination) and await self._moving.is_idle(self._destination)
