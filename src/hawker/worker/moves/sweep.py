"""What moves leave behind at a node: deliveries that are still owed, files that were retired, drafts of nothing, and
records that are old enough to be forgotten. Also begins the moves that are due.
"""

from functools import partial

from hawker.containment import contained
from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.contract import Resource
from hawker.fsm.run import ENDED
from hawker.ids import MachineId, SnapshotId, VolumeId, is_snapshot_id, is_volume_id
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
    RETIRED_UNITS,
    SIGNPOSTS_KEPT_S,
    MoveState,
    incoming_resource,
    snapshots_resource,
)
from hawker.record.volume import SNAPSHOTS_BY_VOLUME, backup_resource, volume_resource
from hawker.store.contract import Durability, Reader, Tx
from hawker.volume.moved_files import MovedFile
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves import ownership
from hawker.worker.moves.arrive import is_arriving
from hawker.worker.moves.deliver import DELIVER
from hawker.worker.moves.outgoing import DeliverInput
from hawker.worker.moves.reclaim import RECLAIM
from hawker.worker.moves.scheduled import ScheduledMoves
from hawker.worker.moves.snapshots import begin_bringing, offer_snapshots, snapshots_left
from hawker.worker.moves.turns import forget_turns, keep_turn
from hawker.worker.moves.unit import unit_files, unit_resource

_log = bind("hawker.moves")
_OWED = {MoveState.GRANTED: DELIVER.name, MoveState.RECLAIMING: RECLAIM.name}
"""The flow that goes on with a move that nobody may end, by the move's state."""


class MoveSweep:
    def __init__(self, deps: FlowDeps, scheduled: ScheduledMoves) -> None:
        self._deps = deps
        self._scheduled = scheduled

    async def serve(self, every_s: float) -> None:
        """Begins moves whose time has come and sweeps what moves left, until cancelled."""
        while True:
            with contained("what moves left is swept"):
                try:
                    await self._scheduled.begin_due()
                    await self.sweep()
                except (HawkerError, OSError) as error:
                    _log.error("what moves left is not looked at", extra={"error": str(error)})
            await self._deps.clock.sleep(every_s)

    async def sweep(self) -> None:
        """Remove files that were retired long enough ago, and drafts of nothing; take up deliveries, reclaims and
        snapshots that are to come, whose run an operator ended; give up what was taken back, and the snapshots of
        it."""
        deps = self._deps
        for _, move in list(deps.store.scan(MOVES)):
            await keep_turn(deps, move)
            if move.state in _OWED and journal.active(deps.store, unit_resource(move)) is None:
                await deps.store.write(partial(self._take_up, move_id=move.id))
        for volume_id in {each.snapshot.volume for _, each in deps.store.scan(COMING_SNAPSHOTS)}:
            if journal.active(deps.store, snapshots_resource(volume_id)) is None:
                await deps.store.write(partial(begin_bringing, deps=deps, volume_id=volume_id))
        if deps.others.are_there:
            await ownership.look(deps)
            await offer_snapshots(deps)
        await deps.store.write(self._forget_old, Durability.ORDERED)
        for unit in [key for key, _ in deps.store.scan(MOVED) if self._is_old(deps.store, key)]:
            await deps.store.write(partial(self._forget_signpost, unit=unit), Durability.ORDERED)
        if any(unit.until <= deps.clock.now() for _, unit in deps.store.scan(RETIRED_UNITS)):
            await deps.store.write(self._forget_units)
        if deps.moved_files is None:
            return
        now = deps.clock.now()
        moving = [each for _, each in deps.store.scan(MOVES) if each.state in OPEN_MOVES]
        await deps.moved_files.end_watches([file.id for each in moving for file in unit_files(each)])
        reclaimed = {file for each in moving if each.reclaimed for file in unit_files(each)}
        for key, kept in list(deps.store.scan(RETIRED)):
            file = MovedFile(kept.volume, kept.layer, kept.memory)
            if kept.until <= now and file not in reclaimed:
                await deps.moved_files.forget(file, kept.generation)
                await deps.store.write(lambda tx, key=key: tx.delete(RETIRED, key))  # type: ignore[misc]
        for draft in await deps.moved_files.drafts():
            if not self._is_filled(draft):
                await deps.moved_files.drop(draft)

    def _is_filled(self, draft: str) -> bool:
        store = self._deps.store
        if is_snapshot_id(draft):
            coming = store.get(COMING_SNAPSHOTS, SnapshotId(draft))
            return coming is not None and not coming.arrived
        move_id = draft.partition(".")[0]
        record, run = store.get(INCOMING, move_id), journal.active(store, incoming_resource(move_id))
        awaited = record is not None and (record.state in AWAITED or is_arriving(store, record))
        return awaited or (run is not None and run.state not in ENDED)

    def _forget_old(self, tx: Tx) -> None:
        """Turns that are over; moves that ended after their days; never what is still owed, nor what snapshots follow
        by."""
        oldest = self._deps.clock.now() - SIGNPOSTS_KEPT_S
        forget_turns(tx, self._deps.clock.now())
        for key, move in list(tx.scan(MOVES)):
            if move.state not in OPEN_MOVES and move.updated_at < oldest and not snapshots_left(tx, move):
                tx.delete(MOVES, key)
        for key, incoming in list(tx.scan(INCOMING)):
            left = incoming.volume is not None and _has_snapshots(tx, incoming.volume.id)
            if incoming.state not in AWAITED and incoming.created_at < oldest and not left:
                tx.delete(INCOMING, key)

    def _is_old(self, reader: Reader, unit: str) -> bool:
        """Whether nobody needs its signpost any more."""
        post = reader.get(MOVED, unit)
        if post is None or post.at >= self._deps.clock.now() - SIGNPOSTS_KEPT_S:
            return False
        return reader.get(OPEN_MOVE_OF, unit) is None and not _has_snapshots(reader, unit)

    def _forget_signpost(self, tx: Tx, unit: str) -> None:
        """With it go the runs that this node had at the machine or volume."""
        if self._is_old(tx, unit):
            tx.delete(MOVED, unit)
            tx.delete(GRANTS, unit)
            for resource in _resources_of(unit):
                journal.trim(tx, resource, keep=0)

    def _forget_units(self, tx: Tx) -> None:
        """Durably, always: from now on their owners are told that nobody takes them back, and ask no more."""
        for key, unit in list(tx.scan(RETIRED_UNITS)):
            if unit.until <= self._deps.clock.now():
                tx.delete(RETIRED_UNITS, key)

    def _take_up(self, tx: Tx, move_id: str) -> None:
        move = tx.get(MOVES, move_id)
        if move is not None and move.state in _OWED and journal.active(tx, unit_resource(move)) is None:
            self._deps.runs.accept(tx, _OWED[move.state], unit_resource(move), DeliverInput(move=move_id))


def _resources_of(unit: str) -> tuple[Resource, ...]:
    if is_volume_id(unit):
        return volume_resource(VolumeId(unit)), backup_resource(VolumeId(unit))
    return (machine_resource(MachineId(unit)),)


def _has_snapshots(reader: Reader, volume_id: str) -> bool:
    return next(iter(reader.scan(SNAPSHOTS_BY_VOLUME, f"{volume_id}/")), None) is not None
