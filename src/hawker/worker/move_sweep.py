"""What moves leave behind at a node: deliveries that are still owed, files that were retired, drafts of nothing, and
records that are old enough to be forgotten. Also begins the moves that are due.
"""

from functools import partial

from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.contract import Resource
from hawker.fsm.run import ENDED
from hawker.log import bind
from hawker.record.machine import machine_resource
from hawker.record.move import (
    AWAITED,
    COMING_SNAPSHOTS,
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    OPEN_MOVES,
    RETIRED,
    SIGNPOSTS_KEPT_S,
    MoveRecord,
    MoveState,
    incoming_resource,
    snapshots_resource,
)
from hawker.record.volume import SNAPSHOTS_BY_VOLUME, volume_resource
from hawker.store.contract import Durability, Tx
from hawker.volume.moved_files import MovedFile
from hawker.worker.lifecycle.deliver import DELIVER
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.move import DeliverInput
from hawker.worker.lifecycle.moved_snapshots import begin_bringing, snapshots_left
from hawker.worker.lifecycle.moved_unit import unit_files
from hawker.worker.scheduled_moves import ScheduledMoves

_log = bind("hawker.moves")


class MoveSweep:
    def __init__(self, deps: FlowDeps, scheduled: ScheduledMoves) -> None:
        self._deps = deps
        self._scheduled = scheduled

    async def serve(self, every_s: float) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._scheduled.begin_due()
                await self.sweep()
            except (HawkerError, OSError) as error:
                _log.error("what moves left is not looked at", extra={"error": str(error)})
            await self._deps.clock.sleep(every_s)

    async def sweep(self) -> None:
        """Remove files that were retired long enough ago, and drafts of nothing; take up deliveries, and snapshots that
        are to come, whose run an operator ended."""
        deps = self._deps
        for _, move in list(deps.store.scan(MOVES)):
            if move.state is MoveState.GRANTED and journal.active(deps.store, _resource_of(move)) is None:
                await deps.store.write(partial(self._take_up, move_id=move.id))
        for volume_id in {each.snapshot.volume for _, each in deps.store.scan(COMING_SNAPSHOTS)}:
            if journal.active(deps.store, snapshots_resource(volume_id)) is None:
                await deps.store.write(partial(begin_bringing, deps=deps, volume_id=volume_id))
        await deps.store.write(self._forget_old, Durability.ORDERED)
        if deps.moved_files is None:
            return
        now = deps.clock.now()
        moving = [each for _, each in deps.store.scan(MOVES) if each.state in OPEN_MOVES]
        await deps.moved_files.end_watches([file.id for each in moving for file in unit_files(each)])
        for key, kept in list(deps.store.scan(RETIRED)):
            if kept.until <= now:
                await deps.moved_files.forget(MovedFile(kept.volume, kept.layer), kept.generation)
                await deps.store.write(lambda tx, key=key: tx.delete(RETIRED, key))  # type: ignore[misc]
        for draft in await deps.moved_files.drafts():
            move_id = draft.partition(".")[0]
            record = deps.store.get(INCOMING, move_id)
            run = journal.active(deps.store, incoming_resource(move_id))
            if (record is None or record.state not in AWAITED) and (run is None or run.state in ENDED):
                await deps.moved_files.drop(draft)

    def _forget_old(self, tx: Tx) -> None:
        """Moves that ended, and signposts, after their days; never what is still owed, nor what snapshots follow by."""
        oldest = self._deps.clock.now() - SIGNPOSTS_KEPT_S
        for key, move in list(tx.scan(MOVES)):
            if move.state not in OPEN_MOVES and move.updated_at < oldest and not snapshots_left(tx, move):
                tx.delete(MOVES, key)
        for key, incoming in list(tx.scan(INCOMING)):
            if incoming.state not in AWAITED and incoming.created_at < oldest:
                tx.delete(INCOMING, key)
        for key, post in list(tx.scan(MOVED)):
            followed = next(iter(tx.scan(SNAPSHOTS_BY_VOLUME, f"{key}/")), None) is not None
            if post.at < oldest and tx.get(OPEN_MOVE_OF, key) is None and not followed:
                tx.delete(MOVED, key)
                tx.delete(GRANTS, key)

    def _take_up(self, tx: Tx, move_id: str) -> None:
        move = tx.get(MOVES, move_id)
        if move is not None and move.state is MoveState.GRANTED and journal.active(tx, _resource_of(move)) is None:
            self._deps.runs.accept(tx, DELIVER.name, _resource_of(move), DeliverInput(move=move_id))


def _resource_of(move: MoveRecord) -> Resource:
    """What the runs of a move work on, at its source."""
    if move.machine is not None:
        return machine_resource(move.machine)
    assert move.volume is not None, "a move is of something"
    return volume_resource(move.volume)
