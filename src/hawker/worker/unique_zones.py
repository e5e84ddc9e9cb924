"""Volumes made from what there is that are to be on another host: made beside their source, where the blocks are, and
moved once they are whole. One transaction accepts both, so a volume leaves whatever becomes of this daemon, and nobody
uses it before. Where an empty one is made is the gateway's to choose.
"""

from collections.abc import Callable

import anyio

from hawker.api.contract.volume import CreateVolumeRequest
from hawker.errors import Unavailable
from hawker.record.move import OPEN_MOVES, MoveRecord
from hawker.record.volume import VolumeRecord, count_beside
from hawker.store.contract import Tx
from hawker.volume.restore import VolumeClones, VolumeOrigin
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.destinations import takers
from hawker.worker.moves.orders import MachineMoves
from hawker.worker.moves.outgoing import LOOK_S

AWAY_S = 60.0
"""The seconds that an answer waits for a volume that is made and then moved."""


class UniqueZones:
    def __init__(self, deps: FlowDeps, origins: VolumeClones, moves: MachineMoves) -> None:
        self._deps = deps
        self._origins = origins
        self._moves = moves

    def wanted(self, record: VolumeRecord, body: CreateVolumeRequest, origin: VolumeOrigin) -> bool:
        """Whether what it is to be apart from is on this host, and there is another one; which has room is asked by
        the move."""
        if not body.require_unique_zone or not self._others(record.region):
            return False
        name = None if body.unique_zone_app_wide else record.name
        there = self._deps.volumes.of_app(self._deps.store, record.app)
        return origin.volume is not None or count_beside(there, name) > 0

    def _others(self, region: str) -> bool:
        try:
            others = self._deps.others.there
        except Unavailable:
            return False
        return bool(takers(others.nodes(), others.me, region))

    async def create(
        self,
        record: VolumeRecord,
        body: CreateVolumeRequest,
        origin: VolumeOrigin,
        note: Callable[[Tx, VolumeRecord], None],
    ) -> tuple[VolumeRecord, MoveRecord]:
        """The volume as it was ordered, and its move, which has ended or took too long to wait for. `note` is done in
        the transaction."""
        ordered = list[MoveRecord]()

        def leave(tx: Tx, made: VolumeRecord) -> None:
            note(tx, made)
            ordered[:] = [self._moves.of_free(tx, made)]

        made = await self._origins.create(record, body, origin, leave)
        (move,) = ordered
        with anyio.move_on_after(AWAY_S):
            while (move := self._moves.get(move.id)).state in OPEN_MOVES:
                await self._deps.clock.sleep(LOOK_S)
        return made, move
