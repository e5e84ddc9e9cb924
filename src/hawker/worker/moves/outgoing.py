"""A move at its source: what its flows `move`, `deliver` and `reclaim` read of its record and change of it, each in one
transaction.
"""

from typing import Any

import msgspec

from hawker.api.contract.market import OrderedApp
from hawker.config import stop_config
from hawker.errors import NotFound
from hawker.fsm.contract import Backoff
from hawker.ids import InstanceId, new_ulid
from hawker.machine import State
from hawker.record.app import APPS
from hawker.record.machine import EVENTS, MACHINES, Detail, MachineRecord, machine_resource
from hawker.record.move import GRANTS, MOVES, OPEN_MOVE_OF, UNTOUCHED, Delivered, MoveRecord, MoveState
from hawker.record.node import FailoverRecords
from hawker.store.contract import Reader, Tx
from hawker.worker.capacity import at_rest
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import Launch, runs
from hawker.worker.lifecycle.stop import Halt, RestartInput
from hawker.worker.moves.snapshots import carried_snapshots
from hawker.worker.moves.unit import moved_volume
from hawker.worker.table import Happened

LOOK_S = 0.2
OFTEN = Backoff(attempts=1000, first_s=0.2, cap_s=30.0)


class DeliverInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the run that delivers a moved machine or volume."""

    move: str
    """The id of the move, which is that of the run at the destination."""


def migrated(status: str, move: MoveRecord, reason: str = "") -> Happened:
    """An event of the machine: which move, from where to where, and why it ended."""
    what = f"move {move.id} to {move.to or 'another node'}"
    return Happened("migrate", status, "user", Detail(error=f"{what}: {reason}" if reason else what))


def change_move(tx: Tx, deps: FlowDeps, move_id: str, **fields: Any) -> MoveRecord:
    """Changes fields of a move and returns the new record. Raises `NotFound`."""
    record = tx.get(MOVES, move_id)
    if record is None:
        raise NotFound(f"move {move_id} not found")
    changed = msgspec.structs.replace(record, **fields, updated_at=deps.clock.now())
    tx.put(MOVES, move_id, changed)
    return changed


def move_in(context: Context[Any], reader: Reader | None = None) -> MoveRecord:
    """The record of the run's own move, or of the move that it was handed. Raises `NotFound`."""
    move_id = context.input.move if isinstance(context.input, DeliverInput) else context.run_id
    found = (reader or context.deps.store).get(MOVES, move_id)
    if found is None:
        raise NotFound(f"move {move_id} not found")
    return found


def give_back(tx: Tx, deps: FlowDeps, move_id: str, reason: str) -> None:
    """The source is the owner, and what ran is started."""
    move = tx.get(MOVES, move_id)
    if move is None or is_granted_by(tx, move):
        return
    for each in filter(None, (move.machine, move.volume)):
        tx.delete(OPEN_MOVE_OF, each)
    was, now = move.state, deps.clock.now()
    back_at = now if move.ran and was not in UNTOUCHED else None
    move = change_move(tx, deps, move_id, state=MoveState.ABORTED, reason=reason, back_at=back_at)
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is None:
        return
    record = deps.table.change(tx, record, migrated("aborted", move, reason))
    if move.memory is not None and record.state is State.SUSPENDING:  # its memory was put aside, and is back
        deps.table.change(tx, record, state=State.SUSPENDED, running=move.memory.running)
    if was not in UNTOUCHED and move.drops_memory:
        _rest(tx, deps, record)
    if was in UNTOUCHED or not move.ran:
        return
    run = Launch(instance_id=InstanceId(new_ulid(deps.clock)))
    if runs(record):  # its stop was cut short, and its end is not recorded yet
        signal, timeout_s = stop_config(record.config)
        again = RestartInput(instance_id=run.instance_id, signal=signal, timeout_s=timeout_s)
        deps.table.change(
            tx, record, Happened("restart", "restarting"), state=State.RESTARTING, awaited=run.instance_id
        )
        deps.runs.accept(tx, "restart", machine_resource(record.id), again)
        return
    deps.table.change(
        tx, record, Happened("start", "starting"), state=State.STARTING, restarts=0, awaited=run.instance_id
    )
    deps.runs.accept(tx, "start", machine_resource(record.id), run)


def _rest(tx: Tx, deps: FlowDeps, record: MachineRecord) -> None:
    """One that was suspended has no memory to go back to: it is off, once its stop, which may have been cut short, has
    ended."""
    if runs(record):
        signal, timeout_s = stop_config(record.config)
        deps.runs.accept(tx, "stop", machine_resource(record.id), Halt(signal=signal, timeout_s=timeout_s))
    else:
        deps.table.change(tx, record, state=State.STOPPED, holds=at_rest(record), restarts=0)


def is_granted_by(reader: Reader, move: MoveRecord) -> bool:
    made = reader.get(GRANTS, move.unit)
    return made is not None and made.move == move.id


def unit_of(deps: FlowDeps, move: MoveRecord, *, granted: bool = False) -> tuple[OrderedApp, bytes]:
    """The app, and all that there is of what moves, sealed; what opens it only for its owner. Raises `NotFound`."""
    store, others = deps.store, deps.others.there
    app = store.get(APPS, move.app)
    if app is None:
        raise NotFound("app not found")
    fields = msgspec.structs.asdict(app)
    fields.pop("idempotency_key")
    fields.pop("home")
    machine = None if move.machine is None else store.get(MACHINES, move.machine)
    volume, keys = moved_volume(deps, move), deps.volume_keys
    unit = Delivered(
        machine=machine,
        versions=() if machine is None else tuple(reversed(deps.table.versions(store, machine.id))),
        events=() if machine is None else tuple(event for _, event in store.scan(EVENTS, f"{machine.id}/")),
        secrets=deps.secrets.pinned(store, machine.id, machine.version) if machine is not None and granted else {},
        volume=volume,
        volume_key=keys.open(volume.key) if granted and keys and volume is not None and volume.key is not None else b"",
        root=move.root,
        memory=move.memory,
        snapshots=carried_snapshots(deps, move) if granted else (),
        failover=FailoverRecords() if machine is None else FailoverRecords.of(store, machine.id),
        ran=move.ran,
        back_of=move.back_of,
    )
    packed = OrderedApp(**fields, luggage=others.pack(store, app))
    return packed, others.seal(msgspec.msgpack.encode(unit))
