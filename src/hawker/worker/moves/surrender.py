"""Flow `surrender`, at a node that was lost and has returned: what was taken back meanwhile is stopped, and what is
here of it goes, its files after a day. Nothing of it is undone: the node owns it no more.
"""

from msgspec.structs import replace

from hawker.errors import NotFound
from hawker.fsm import journal
from hawker.fsm.contract import Done, Flow, Outcome, Retry, Step
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.move import (
    INCOMING,
    OPEN_MOVE_OF,
    RETIRED,
    RETIRED_KEPT_S,
    IncomingRecord,
    IncomingState,
    RetiredRecord,
)
from hawker.record.volume import VOLUMES, VolumeRecord, volume_resource
from hawker.runtime.driver import Exit, Phase
from hawker.store.contract import Reader, Tx
from hawker.volume.moved_files import MovedFile
from hawker.worker.capacity import kept_layer
from hawker.worker.exits import record_exit
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import runs
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.moves.outgoing import OFTEN
from hawker.worker.moves.ownership import SURRENDER_FLOW, SurrenderInput
from hawker.worker.moves.snapshots import leave_snapshots
from hawker.worker.moves.unit import files_of


def _came(context: Context[SurrenderInput]) -> IncomingRecord:
    """Raises `NotFound`."""
    found = context.deps.store.get(INCOMING, context.input.move)
    if found is None:
        raise NotFound(f"move {context.input.move} is not known here")
    return found


def _machine(reader: Reader, came: IncomingRecord) -> MachineRecord | None:
    return None if came.machine is None else reader.get(MACHINES, came.machine.id)


def _volume(reader: Reader, came: IncomingRecord) -> VolumeRecord | None:
    """Not one that another machine here was given meanwhile."""
    found = None if came.volume is None else reader.get(VOLUMES, came.volume.id)
    machine = None if came.machine is None else came.machine.id
    return found if found is not None and found.machine in (None, machine) else None


async def end(context: Context[SurrenderInput]) -> Outcome:
    """Ends whatever runs of the unit, by a kill: what it would write yet is lost in any case."""
    record = _machine(context.deps.store, _came(context))
    if record is None or not runs(record):
        return Done()
    try:
        if (await context.deps.driver.inspect(record.id)).phase is Phase.SUSPENDED:  # it is not woken for its end
            await context.deps.driver.destroy(record.id)
        exit = await context.deps.driver.stop(record.id, "SIGKILL", 0.0)
    except NotFound:
        exit = Exit(exit_code=137, signal=9, exited_at=context.clock.now(), reason="the instance was gone")
    return Done(commit=lambda tx: _ended(tx, context, exit))


def _ended(tx: Tx, context: Context[SurrenderInput], exit: Exit) -> None:
    record = _machine(tx, _came(context))
    if record is not None and record.running is not None:
        record_exit(tx, context.deps.table, record, record.running.instance_id, exit)


async def drop(context: Context[SurrenderInput]) -> Outcome:
    """Drops the unit: nothing of it is mounted, routed or in its place any more; its files are kept aside."""
    deps, came = context.deps, _came(context)
    record, volume = _machine(deps.store, came), _volume(deps.store, came)
    busy = None if volume is None else journal.active(deps.store, volume_resource(volume.id))
    if busy is not None and busy.id != context.run_id:
        return Retry("something else is under way at the volume", after_s=0.5)
    if record is not None:
        await deps.driver.destroy(record.id)
        context.reach("cleared")
        if deps.rootfs is not None:
            await deps.rootfs.unmount(record.id, kept=kept_layer(record))
        await unmount_volume(deps, record)
        if deps.networks is not None:
            await deps.networks.delete(record.id)
        await deps.enforcer.renew_soon(record.app, without={record.id})
    files = _files(record, volume)
    for each in files:
        await files_of(deps).retire(each, came.generation)
    if record is not None and deps.rootfs is not None:
        await deps.rootfs.remove(record.id)
    context.reach("retired")
    return Done(commit=lambda tx: _dropped(tx, deps, came, files))


def _files(record: MachineRecord | None, volume: VolumeRecord | None) -> tuple[MovedFile, ...]:
    layer = kept_layer(record)
    kept = () if record is None or layer is None else (MovedFile(record.id, layer),)
    return (*kept, *(() if volume is None else (MovedFile(volume.id),)))


def _dropped(tx: Tx, deps: FlowDeps, came: IncomingRecord, files: tuple[MovedFile, ...]) -> None:
    record, volume = _machine(tx, came), _volume(tx, came)
    for each in (came.machine, came.volume):
        if each is not None:
            tx.delete(OPEN_MOVE_OF, each.id)
    if record is not None:
        deps.table.leave(tx, record)
    if volume is not None:
        deps.volumes.depart(tx, volume)
        leave_snapshots(tx, volume.id)
    for file in files:
        kept = RetiredRecord(
            volume=file.id,
            generation=came.generation,
            until=deps.clock.now() + RETIRED_KEPT_S,
            key=volume.key if volume is not None and not file.layer else None,
            layer=file.layer,
        )
        tx.put(RETIRED, f"{file.id}/{came.generation}", kept)
    reason = f"node {came.source} took it back while this node was away"
    tx.put(INCOMING, came.move, replace(came, state=IncomingState.REFUSED, reason=reason))


SURRENDER = Flow(
    name=SURRENDER_FLOW,
    input=SurrenderInput,
    steps=(
        Step("end", end, timeout_s=600, backoff=OFTEN, durable=True),
        Step("drop", drop, timeout_s=600, backoff=OFTEN, durable=True,
             points=("killed", "cleared", "detached", "unmounted", "unrouted", "unlinked", "unbound", "retired")),
    ),
)  # fmt: skip
