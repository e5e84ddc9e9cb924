"""Flows `move` and `deliver`, at the source of a move. The destination copies; nothing of it counts there until the
step `grant` is durable here. That commit is the change of owner. Before it, every failure ends with the machine as it
was; after it, `deliver` goes on until the new owner has heard of it.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from hawker.api.contract.market import OrderedApp
from hawker.api.contract.move import (
    ACCEPT_MOVE,
    DROP_INCOMING,
    OFFER_MOVE,
    SHOW_INCOMING,
    DeliverRequest,
    IncomingMove,
    IncomingRequest,
    MoveParams,
)
from hawker.api.directory import Node
from hawker.config import stop_config
from hawker.config.process_rules import LONGEST_STOP_S
from hawker.errors import Conflict, HawkerError, NoDestination, NotFound, Unavailable
from hawker.fsm import journal
from hawker.fsm.contract import Abort, Backoff, Done, EndedRun, Ending, Flow, HandOff, Outcome, Retry, Step
from hawker.fsm.run import State as RunState
from hawker.ids import InstanceId, NodeId, VolumeId, new_ulid
from hawker.machine import State
from hawker.record.app import APPS
from hawker.record.machine import EVENTS, MACHINES, Detail, machine_resource
from hawker.record.move import (
    GRANTS,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    RETIRED,
    RETIRED_KEPT_S,
    Delivered,
    GrantRecord,
    IncomingState,
    MovedRecord,
    MoveRecord,
    MoveState,
    RetiredRecord,
)
from hawker.record.volume import VOLUMES, volume_resource
from hawker.store.contract import Durability, Reader, Tx
from hawker.volume.moved_files import MovedFiles
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import Launch, runs
from hawker.worker.lifecycle.stop import PATIENT, Halt, RestartInput, halt, undo_halt
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.table import Happened

PREPARE_S = 600.0
SILENT_S = 30.0
"""How long a machine is off for a destination that does not answer, or makes no progress."""

_LOOK_S = 0.2
_SEEN_S = 10.0
_CALLER = "move"
_DELIVERIES = 900  # of one run, before the next takes over


class MoveInput(Halt, frozen=True, kw_only=True):
    """`move` names the record, which has the rest."""


class DeliverInput(msgspec.Struct, frozen=True, kw_only=True):
    """Of which move."""

    move: str


def migrated(status: str, move: MoveRecord, reason: str = "") -> Happened:
    """An event of the machine: which move, from where to where, and why it ended."""
    what = f"move {move.id} to {move.to or 'another node'}"
    return Happened("migrate", status, "user", Detail(error=f"{what}: {reason}" if reason else what))


def change_move(tx: Tx, deps: FlowDeps, move_id: str, **fields: Any) -> MoveRecord:
    """As it is now. Raises `NotFound`."""
    record = tx.get(MOVES, move_id)
    if record is None:
        raise NotFound(f"move {move_id} not found")
    changed = msgspec.structs.replace(record, **fields, updated_at=deps.clock.now())
    tx.put(MOVES, move_id, changed)
    return changed


def move_in(context: Context[Any], reader: Reader | None = None) -> MoveRecord:
    """The run's own, or the one that it was handed. Raises `NotFound`."""
    move_id = context.input.move if isinstance(context.input, DeliverInput) else context.run_id
    found = (reader or context.deps.store).get(MOVES, move_id)
    if found is None:
        raise NotFound(f"move {move_id} not found")
    return found


# Move: until the grant.


async def choose(context: Context[MoveInput]) -> Outcome:
    """Which nodes are asked, and in which order."""
    move = move_in(context)
    if move.to:
        return Done(result=[move.to])
    others = context.deps.others.there
    try:
        return Done(result=candidates(others.nodes(), others.me, move))
    except NoDestination as error:  # it went away since the move was ordered
        return Abort(error)


def candidates(nodes: Sequence[Node], me: NodeId, move: MoveRecord) -> list[NodeId]:
    """The emptiest first. A node that is asked for by name may be of any region. Raises `NoDestination`."""
    able = [node for node in nodes if node.id != me and node.alive and not node.cordoned and not node.draining]
    if move.wanted:
        if not any(node.id == move.wanted for node in able):
            raise NoDestination(f"node {move.wanted} is silent, takes no machines now, or is not known here")
        return [move.wanted]
    near = [node for node in able if node.region == move.region]
    if not near:
        raise NoDestination(f"no other node of region {move.region} lives and takes machines")
    return [node.id for node in sorted(near, key=lambda node: (-_free_mib(node), node.id))]


def _free_mib(node: Node) -> int:
    if node.capacity is None or node.used is None:
        return 0
    return min(node.capacity.disk_mib - node.used.disk_mib, node.capacity.memory_mib - node.used.memory_mib)


async def prepare(context: Context[MoveInput]) -> Outcome:
    """One of them holds room and has what the machine needs. The machine runs meanwhile."""
    deps, refusals = context.deps, list[str]()
    for node in context.result("choose", list[NodeId]):
        await deps.store.write(lambda tx, node=node: change_move(tx, deps, context.run_id, to=node))  # type: ignore[misc]
        try:
            with anyio.fail_after(PREPARE_S):
                await _prepared(context, node)
            return Done()
        except (HawkerError, TimeoutError) as error:
            refusals.append(f"node {node}: {str(error) or 'not ready in time'}")
            await _drop(context, node)
    return Abort(NoDestination(f"no node can take it: {'; '.join(refusals)}"))


async def _prepared(context: Context[MoveInput], node: NodeId) -> None:
    """Raises what the node says, or `Unavailable`."""
    deps, move = context.deps, move_in(context)
    app, unit = unit_of(deps, move)
    body = IncomingRequest(
        source=deps.others.there.me,
        generation=move.generation,
        app=app,
        unit=unit,
        limit_mib_per_s=move.limit_mib_per_s,
    )
    params = MoveParams(move_id=move.id)
    while True:
        try:
            found = await deps.others.there.caller(node).call(OFFER_MOVE, params=params, body=body)
            break
        except Conflict:  # it is at other moves
            await context.clock.sleep(1.0)
    while found.state == IncomingState.HOLDING:
        await context.clock.sleep(_LOOK_S)
        found = await deps.others.there.caller(node).call(SHOW_INCOMING, params=params)
    if found.state not in (IncomingState.READY, IncomingState.COPIED):
        raise Unavailable(found.reason or f"it is {found.state} there")
    while _busy_volume(context, move):  # nothing new begins there
        await context.clock.sleep(_LOOK_S)


def _busy_volume(context: Context[MoveInput], move: MoveRecord) -> bool:
    """Whether a snapshot, an extension or the like is under way at the volume."""
    run = None if move.volume is None else journal.active(context.deps.store, volume_resource(move.volume))
    return run is not None and run.id != context.run_id


async def undo_prepare(context: Context[MoveInput]) -> None:
    """A destination that is not reached asks here by itself, and hears that the move has ended."""
    move = context.deps.store.get(MOVES, context.run_id)
    if move is not None and move.to and not _is_granted(context.deps.store, move):
        await _drop(context, move.to)


async def _drop(context: Context[MoveInput], node: NodeId) -> None:
    try:
        await context.deps.others.there.caller(node).call(DROP_INCOMING, params=MoveParams(move_id=context.run_id))
    except HawkerError:
        return


async def stop(context: Context[MoveInput]) -> Outcome:
    """End the instance, as a stop does."""
    deps, move = context.deps, move_in(context)
    if move.state is MoveState.PREPARING:
        await deps.store.write(lambda tx: _stopping(tx, deps, move), Durability.DURABLE)
    context.reach("intended")
    if move.machine is None:
        return Done()
    return await halt(context)


def _stopping(tx: Tx, deps: FlowDeps, move: MoveRecord) -> None:
    now = deps.clock.now()
    change_move(tx, deps, move.id, state=MoveState.STOPPING, away_at=now if move.ran else None)
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None and record.state is State.STARTED:
        deps.table.change(tx, record, Happened("stop", "stopping", "user"), state=State.STOPPING, awaited=None)


async def close(context: Context[MoveInput]) -> Outcome:
    """Nobody here writes to the volume from now on, and what was written is on disk."""
    deps, move = context.deps, move_in(context)
    record = None if move.machine is None else deps.store.get(MACHINES, move.machine)
    if record is not None:
        if deps.rootfs is not None:
            await deps.rootfs.unmount(record.id, kept=None)
        await unmount_volume(deps, record)
        context.reach("unmounted")
        if deps.networks is not None:
            await deps.networks.delete(record.id)
        await deps.fences.renew_soon(record.app, without={record.id})
    stored = 0
    if move.volume is not None:
        if _busy_volume(context, move):
            return Retry("something else is under way at the volume", after_s=0.5)
        await files_of(deps).flush(move.volume)
        stored = await files_of(deps).stored_bytes(move.volume)
    return Done(commit=lambda tx: _closed(tx, deps, move, stored))


def _closed(tx: Tx, deps: FlowDeps, move: MoveRecord, stored: int) -> None:
    changed = change_move(tx, deps, move.id, state=MoveState.COPYING, stored_bytes=stored, closed_at=deps.clock.now())
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None:
        deps.table.change(tx, record, migrated("stopped", changed), state=State.STOPPED)


async def copy(context: Context[MoveInput]) -> Outcome:
    """The destination has it all, on its disk, and both sides read the same from it."""
    move = move_in(context)
    if move.volume is None:
        return Done(result="")
    found: list[str] = []

    async def digest(volume_id: VolumeId) -> None:
        found.append(await files_of(context.deps).digest(volume_id))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(digest, move.volume)
        theirs = await _copied(context, move)
    if isinstance(theirs, str):
        return Abort(Unavailable(theirs))
    return await compare(context, found[0], theirs.digest)


async def compare(context: Context[MoveInput], ours: str, theirs: str) -> Outcome:
    if ours != theirs:
        return Abort(Unavailable(f"the copy is not what is here: {theirs} instead of {ours}"))
    return Done(result=ours)


async def _copied(context: Context[MoveInput], move: MoveRecord) -> IncomingMove | str:
    """What the destination has, once it has all; or why it will not."""
    deps, params = context.deps, MoveParams(move_id=move.id)
    seen, last, silent = 0, context.clock.monotonic(), ""
    while context.clock.monotonic() - last < SILENT_S:
        await context.clock.sleep(_LOOK_S)
        try:
            found = await deps.others.there.caller(move.to).call(SHOW_INCOMING, params=params)
        except NotFound:
            return f"node {move.to} does not know the move any more"
        except HawkerError as error:
            silent = str(error)
            continue
        if found.state == IncomingState.COPIED:
            return found
        if found.state != IncomingState.READY:
            return found.reason or f"it is {found.state} at node {move.to}"
        if found.copied_bytes > seen:
            seen, last = found.copied_bytes, context.clock.monotonic()
            await _note_copied(deps, move.id, seen)
    return silent or f"node {move.to} has copied nothing more for {SILENT_S:g} s"


async def _note_copied(deps: FlowDeps, move_id: str, copied: int) -> None:
    await deps.store.write(lambda tx: change_move(tx, deps, move_id, copied_bytes=copied), Durability.ORDERED)


async def grant(context: Context[MoveInput]) -> Outcome:
    """The destination owns it from this commit on."""
    return HandOff("deliver", DeliverInput(move=context.run_id), commit=lambda tx: _grant(tx, context))


def _grant(tx: Tx, context: Context[MoveInput]) -> None:
    """Not once the run was told to stop: its undo gives the machine back. Raises `Unavailable`."""
    run = journal.find(tx, context.run_id)
    if run is None or run.state is not RunState.RUNNING:
        raise Unavailable("the move was cancelled")
    deps, move = context.deps, move_in(context, tx)
    now = deps.clock.now()
    made = GrantRecord(unit=move.unit, generation=move.generation, to=move.to, move=move.id, at=now)
    tx.put(GRANTS, move.unit, made)
    for each in filter(None, (move.machine, move.volume)):
        tx.put(MOVED, each, MovedRecord(app=move.app, to=move.to, generation=move.generation, at=now))
    change_move(tx, deps, move.id, state=MoveState.GRANTED, copied_bytes=move.stored_bytes, granted_at=now)


def reopen(tx: Tx, ended: EndedRun[MoveInput]) -> None:
    """However a move ended before its grant: the machine is as it was."""
    if ended.ending is not Ending.DONE:
        give_back(tx, ended.deps, ended.run_id, ended.error or "cancelled")


def give_back(tx: Tx, deps: FlowDeps, move_id: str, reason: str) -> None:
    """The source is the owner, and what ran is started."""
    move = tx.get(MOVES, move_id)
    if move is None or _is_granted(tx, move):
        return
    for each in filter(None, (move.machine, move.volume)):
        tx.delete(OPEN_MOVE_OF, each)
    was, now = move.state, deps.clock.now()
    back_at = now if move.ran and was is not MoveState.PREPARING else None
    move = change_move(tx, deps, move_id, state=MoveState.ABORTED, reason=reason, back_at=back_at)
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is None:
        return
    record = deps.table.change(tx, record, migrated("aborted", move, reason))
    if was is MoveState.PREPARING or not move.ran:
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


def _is_granted(reader: Reader, move: MoveRecord) -> bool:
    made = reader.get(GRANTS, move.unit)
    return made is not None and made.move == move.id


# Deliver: from the grant on there is no way but forward.


async def deliver(context: Context[DeliverInput]) -> Outcome:
    """The owner has it, or has refused it for ever; then it is this node's once more."""
    deps, move = context.deps, move_in(context)
    app, unit = unit_of(deps, move)
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
    if tx.get(MOVES, move.id) is not None:
        change_move(tx, deps, move.id, back_at=deps.clock.now() if move.ran else None)


def _take_back(tx: Tx, deps: FlowDeps, move: MoveRecord, reason: str) -> None:
    """The refused generation is never used again: this node owns the one after it."""
    if not _is_granted(tx, move):
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
    """It is whole elsewhere: what is here of it goes, its file after a day."""
    deps, move = context.deps, move_in(context)
    if context.result("deliver", str) != "accepted":
        return Done()
    await _seen(context, move)
    if move.machine is not None:
        await deps.driver.destroy(move.machine)
        context.reach("cleared")
        if deps.rootfs is not None:
            await deps.rootfs.remove(move.machine)
    if move.volume is not None:
        await files_of(deps).retire(move.volume, move.generation)
    context.reach("retired")
    return Done(commit=lambda tx: _retired(tx, deps, move))


async def _seen(context: Context[DeliverInput], move: MoveRecord) -> None:
    """Until the catalog has it at its owner, so that it is in a row at every moment; not for ever."""
    until = context.clock.monotonic() + _SEEN_S
    while move.machine is not None and context.clock.monotonic() < until:
        if context.deps.others.there.seen_at(move.machine) == move.to:
            return
        await context.clock.sleep(_LOOK_S)


def _retired(tx: Tx, deps: FlowDeps, move: MoveRecord) -> None:
    for each in filter(None, (move.machine, move.volume)):
        tx.delete(OPEN_MOVE_OF, each)
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None:
        deps.table.leave(tx, record)
    volume = None if move.volume is None else tx.get(VOLUMES, move.volume)
    if volume is not None:
        deps.volumes.depart(tx, volume)
        kept = RetiredRecord(volume=volume.id, generation=move.generation, until=deps.clock.now() + RETIRED_KEPT_S)
        tx.put(RETIRED, f"{volume.id}/{move.generation}", kept)
    change_move(tx, deps, move.id, state=MoveState.DONE)


# What both flows need.


def unit_of(deps: FlowDeps, move: MoveRecord) -> tuple[OrderedApp, bytes]:
    """The app, and all that there is of what moves, sealed. Raises `NotFound`."""
    store, others = deps.store, deps.others.there
    app = store.get(APPS, move.app)
    if app is None:
        raise NotFound("app not found")
    fields = msgspec.structs.asdict(app)
    fields.pop("idempotency_key")
    fields.pop("home")
    machine = None if move.machine is None else store.get(MACHINES, move.machine)
    unit = Delivered(
        machine=machine,
        versions=() if machine is None else tuple(reversed(deps.table.versions(store, machine.id))),
        events=() if machine is None else tuple(event for _, event in store.scan(EVENTS, f"{machine.id}/")),
        secrets={} if machine is None else deps.secrets.pinned(store, machine.id, machine.version),
        volume=None if move.volume is None else store.get(VOLUMES, move.volume),
        ran=move.ran,
    )
    packed = OrderedApp(**fields, luggage=others.pack(store, app))
    return packed, others.seal(msgspec.msgpack.encode(unit))


def files_of(deps: FlowDeps) -> MovedFiles:
    assert deps.moved_files is not None, "only a node with volumes moves one"
    return deps.moved_files


_OFTEN = Backoff(attempts=1000, first_s=0.2, cap_s=30.0)

MOVE = Flow(
    name="move",
    input=MoveInput,
    steps=(
        Step("choose", choose),
        Step("prepare", prepare, undo=undo_prepare, timeout_s=86_400, durable=True),
        Step("stop", stop, undo=undo_halt, undo_backoff=PATIENT, timeout_s=LONGEST_STOP_S + 30, backoff=_OFTEN,
             durable=True, points=("intended", "asked")),
        Step("close", close, timeout_s=600, backoff=_OFTEN, durable=True,
             points=("detached", "unmounted", "unrouted", "unlinked", "unbound")),
        Step("copy", copy, timeout_s=86_400, backoff=Backoff(attempts=2)),
        Step("grant", grant, durable=True),
    ),
    on_end=reopen,
)  # fmt: skip

DELIVER = Flow(
    name="deliver",
    input=DeliverInput,
    steps=(
        Step("deliver", deliver, backoff=_OFTEN, durable=True),
        Step("retire", retire, timeout_s=600, backoff=_OFTEN, points=("killed", "cleared", "detached", "retired")),
    ),
)
