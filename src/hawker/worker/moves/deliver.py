"""Flow `deliver`, at the source of a move: from the grant on there is no way but forward. The new owner hears of it, or
has refused it for ever; then what is here of it goes.
"""

from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import ACCEPT_MOVE, DeliverRequest
from hawker.errors import HawkerError, Unavailable
from hawker.fsm.contract import Abort, Done, Flow, HandOff, Outcome, Retry, Step
from hawker.machine import State
from hawker.record.app import PINNED
from hawker.record.machine import EVENTS, MACHINES, MachineRecord
from hawker.record.move import (
    GRANTS,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    RETIRED,
    RETIRED_KEPT_S,
    RETIRED_UNITS,
    IncomingState,
    MoveRecord,
    MoveState,
    RetiredRecord,
    RetiredUnit,
)
from hawker.record.node import FailoverRecords
from hawker.record.volume import VOLUMES, VolumeRecord
from hawker.store.contract import Tx
from hawker.volume.moved_files import MovedFile
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.moves.outgoing import (
    LOOK_S,
    OFTEN,
    DeliverInput,
    change_move,
    give_back,
    is_granted_by,
    move_in,
    unit_of,
)
from hawker.worker.moves.ownership import taken_back
from hawker.worker.moves.snapshots import leave_snapshots
from hawker.worker.moves.turns import leave_turn
from hawker.worker.moves.unit import files_of, memory_files, retired_key, unit_files

_SEEN_S = 10.0
_DELIVERIES = 900  # of one run, before the next takes over


async def deliver(context: Context[DeliverInput]) -> Outcome:
    """The owner has it, or has refused it for ever; then it is this node's once more."""
    deps, move = context.deps, move_in(context)
    if move.state is not MoveState.GRANTED:
        return Abort(Unavailable(f"the move is {move.state}"))
    gone = await taken_back(deps, move.unit)  # what was granted here may have been taken back since
    if gone is not None:
        return gone
    app, unit = unit_of(deps, move, granted=True)
    body = DeliverRequest(generation=move.generation, app=app, unit=unit)
    try:
        found = await deps.others.there.caller(move.to).call(ACCEPT_MOVE, params=MoveParams(move_id=move.id), body=body)
    except HawkerError as error:
        if context.attempt >= _DELIVERIES:
            return HandOff("deliver", context.input)
        return Retry(f"node {move.to} has not heard of it yet: {error}")
    if found.state == IncomingState.REFUSED:
        return Done(result="refused", commit=lambda tx: _take_back(tx, deps, move, found.reason))
    if found.state != IncomingState.ACCEPTED:
        return Retry(f"it is {found.state} at node {move.to}")
    return Done(result="accepted", commit=lambda tx: _heard(tx, deps, move))


def _heard(tx: Tx, deps: FlowDeps, move: MoveRecord) -> None:
    """Raises `Unavailable` once it was taken back."""
    current = tx.get(MOVES, move.id)
    if current is None or current.state is not MoveState.GRANTED:
        raise Unavailable("the move is not granted any more")
    now = deps.clock.now()
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None and move.memory is not None:  # that its snapshot goes from here is no end of its instance
        deps.table.change(tx, record, state=State.STOPPED, running=None)
    change_move(tx, deps, move.id, heard_at=now, back_at=now if move.ran else None)


def _take_back(tx: Tx, deps: FlowDeps, move: MoveRecord, reason: str) -> None:
    """The refused generation is never used again: this node owns the one after it."""
    current = tx.get(MOVES, move.id)
    if not is_granted_by(tx, move) or current is None or current.state is not MoveState.GRANTED:
        return
    tx.delete(GRANTS, move.unit)
    for each in filter(None, (move.machine, move.volume)):
        tx.delete(MOVED, each)
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None:
        deps.table.change(tx, record, generation=move.generation + 1)
    volume = None if move.volume is None else tx.get(VOLUMES, move.volume)
    if volume is not None:
        deps.volumes.change(tx, volume, generation=move.generation + 1)
    give_back(tx, deps, move.id, f"node {move.to} refused it: {reason}")


async def retire(context: Context[DeliverInput]) -> Outcome:
    """Puts away what is here of a unit that is whole elsewhere; its files go after a day."""
    deps, move = context.deps, move_in(context)
    if context.result("deliver", str) != "accepted":
        for each in unit_files(move):
            await files_of(deps).unwatch(each)
        await leave_turn(deps, move)
        return Done()
    await _seen(context, move)
    for each in memory_files(move):
        await files_of(deps).retire(each, move.generation)
    if move.machine is not None:
        await deps.driver.destroy(move.machine)
        context.reach("cleared")
        await unmount_volume(deps, deps.store.get(MACHINES, move.machine))
    for each in unit_files(move):
        await files_of(deps).retire(each, move.generation)
    if move.machine is not None and deps.rootfs is not None:
        await deps.rootfs.remove(move.machine)
    context.reach("retired")
    await leave_turn(deps, move)
    return Done(commit=lambda tx: _retired(tx, deps, move))


async def _seen(context: Context[DeliverInput], move: MoveRecord) -> None:
    """Until the catalog has it at its owner, so that it is in a row at every moment; not for ever."""
    until = context.clock.monotonic() + _SEEN_S
    while move.machine is not None and context.clock.monotonic() < until:
        if context.deps.others.there.seen_at(move.machine) == move.to:
            return
        await context.clock.sleep(LOOK_S)


def _retired(tx: Tx, deps: FlowDeps, move: MoveRecord) -> None:
    for each in filter(None, (move.machine, move.volume)):
        tx.delete(OPEN_MOVE_OF, each)
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    volume = None if move.volume is None else tx.get(VOLUMES, move.volume)
    if record is not None or volume is not None:
        tx.put(RETIRED_UNITS, move.id, _unit(tx, deps, record, volume))
    if record is not None:
        deps.table.leave(tx, record)
    if volume is not None:
        deps.volumes.depart(tx, volume)
        leave_snapshots(tx, volume.id)
    for file in unit_files(move):
        kept = RetiredRecord(
            volume=file.id,
            generation=move.generation,
            until=deps.clock.now() + RETIRED_KEPT_S,
            key=volume.key if volume is not None and file == MovedFile(volume.id) else None,
            layer=file.layer,
            memory=file.memory,
        )
        tx.put(RETIRED, retired_key(file, move.generation), kept)
    change_move(tx, deps, move.id, state=MoveState.DONE)


def _unit(tx: Tx, deps: FlowDeps, machine: MachineRecord | None, volume: VolumeRecord | None) -> RetiredUnit:
    return RetiredUnit(
        machine=machine,
        versions=() if machine is None else tuple(reversed(deps.table.versions(tx, machine.id))),
        events=() if machine is None else tuple(event for _, event in tx.scan(EVENTS, f"{machine.id}/")),
        secrets=None if machine is None else tx.get(PINNED, f"{machine.id}/{machine.version}"),
        volume=volume,
        failover=FailoverRecords() if machine is None else FailoverRecords.of(tx, machine.id),
        until=deps.clock.now() + RETIRED_KEPT_S,
    )


DELIVER = Flow(
    name="deliver",
    input=DeliverInput,
    steps=(
        Step("deliver", deliver, backoff=OFTEN, durable=True),
        Step("retire", retire, timeout_s=600, backoff=OFTEN, points=("killed", "cleared", "detached", "retired")),
    ),
)
