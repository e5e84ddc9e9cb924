"""Flow `move`, at the source of a move. The destination copies; nothing of it counts there until the step `grant` is
durable here. That commit is the change of owner. Before it, every failure ends with the machine as it was; after it,
`deliver` goes on until the new owner has heard of it.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from msgspec.structs import replace

from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import (
    DROP_INCOMING,
    OFFER_MOVE,
    SHOW_INCOMING,
    IncomingMove,
    IncomingRequest,
)
from hawker.config.process_rules import LONGEST_STOP_S
from hawker.errors import (
    Conflict,
    Damaged,
    HawkerError,
    NoDestination,
    NotFound,
    NotServed,
    SnapshotLost,
    Unavailable,
)
from hawker.fsm import journal
from hawker.fsm.contract import Abort, Backoff, Done, EndedRun, Ending, Flow, HandOff, Outcome, Retry, Step
from hawker.fsm.run import State as RunState
from hawker.ids import InstanceId, NodeId, new_ulid
from hawker.machine import State
from hawker.record.machine import MACHINES, Detail, MachineRecord
from hawker.record.move import (
    FILLING,
    GRANTS,
    MOVED,
    MOVES,
    UNTOUCHED,
    GrantRecord,
    IncomingState,
    KeptMemory,
    MovedRecord,
    MoveMode,
    MoveRecord,
    MoveState,
)
from hawker.record.volume import VOLUMES, VolumeState, volume_resource
from hawker.store.contract import Durability, Tx
from hawker.worker.capacity import kept_layer
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.stop import PATIENT, Halt, halt, undo_halt
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.moves.destinations import COLD_START, apart_first, candidates, resumable
from hawker.worker.moves.outgoing import (
    LOOK_S,
    OFTEN,
    DeliverInput,
    change_move,
    give_back,
    is_granted_by,
    migrated,
    move_in,
    unit_of,
)
from hawker.worker.moves.ownership import taken_back
from hawker.worker.moves.turns import PATIENCE_S, turn, turn_lost, undo_turn
from hawker.worker.moves.unit import (
    files_of,
    image_digest,
    kept_memory,
    kept_root,
    moved_volume,
    stored_bytes,
    trim,
    unit_files,
)
from hawker.worker.table import Happened

PREPARE_S = 600.0
"""The seconds that a machine that runs waits for a destination that does not answer, or makes no progress."""

SILENT_S = 30.0
"""The seconds that a machine is off for a destination that does not answer, or makes no progress; and those that a
destination that gets ready may be silent before the next node is asked."""

_EXITED = "the machine has exited meanwhile"
_TO_RUN = frozenset({State.STARTED, State.STARTING})  # which runs, or is started again by its policy

_LOOK_AWAY_S = 0.05  # while the machine is off
_LOOK_PAUSED_S = 5.0  # a thousand looks are more than the longest pause


class MoveInput(Halt, frozen=True, kw_only=True):
    """`move` names the record, which has the rest."""


async def choose(context: Context[MoveInput]) -> Outcome:
    """Chooses the nodes that are asked, and their order."""
    move = move_in(context)
    if move.to:
        return Done(result=[move.to])
    others = context.deps.others.there
    free = None if move.machine is not None or move.volume is None else context.deps.store.get(VOLUMES, move.volume)
    if move.machine is None and free is None:
        return Abort(NotFound(f"volume {move.volume} could not be made, so there is nothing to move"))
    if free is not None and free.state is VolumeState.HYDRATING:
        return Abort(Unavailable(f"volume {free.id} could not be made as large as ordered yet"))
    try:
        able = candidates(others.nodes(), others.me, move)
    except NoDestination as error:  # it went away since the move was ordered, or this daemon has not met it yet
        return Retry(str(error))
    try:
        able = await resumable(others, able, move)
    except NoDestination as error:
        return Abort(error)
    return Done(result=able if free is None or len(able) == 1 else await apart_first(others, able, free))


async def prepare(context: Context[MoveInput]) -> Outcome:
    """Has one of the nodes hold room and what the machine needs. The machine runs meanwhile."""
    deps, move, refusals = context.deps, move_in(context), list[str]()
    _ = deps.others.there  # raises, and so is tried again, while the daemon is on its way up and has met nobody
    try:
        memory = await _memory(deps, move)
        root = await kept_root(deps, _machine(deps, move), memory)
    except (NotServed, SnapshotLost) as error:
        return Abort(error)
    for node in context.result("choose", list[NodeId]):

        def choose(tx: Tx, node: NodeId = node) -> MoveRecord:
            return change_move(tx, deps, context.run_id, to=node, root=root, memory=memory)

        await deps.store.write(choose)
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
        found = await _seen(context, node)
    if found.state not in FILLING | _COPIED:
        raise Unavailable(found.reason or f"it is {found.state} there")
    if move.root is not None and not found.root:
        raise NotServed("its version is older, and would leave the root filesystem behind that the machine keeps")
    if move.memory is not None and not found.memory:
        raise NotServed(f"its version is older, and would leave the machine's memory behind: {COLD_START}")
    volume = moved_volume(deps, move)
    if not found.losses and (move.accept_loss or (volume is not None and volume.damaged)):
        raise NotServed("its version is older, and would not say what is lost of the volume")
    while _busy_volume(context, move):  # nothing new begins there
        await context.clock.sleep(LOOK_S)


async def _seen(context: Context[MoveInput], node: NodeId) -> IncomingMove:
    """What it has of the move, a little later; a daemon that is being started anew is waited for. Raises what it says,
    or why it says nothing."""
    silent_since = context.clock.monotonic()
    while True:
        await context.clock.sleep(LOOK_S)
        try:
            caller = context.deps.others.there.caller(node)
            return await caller.call(SHOW_INCOMING, params=MoveParams(move_id=context.run_id))
        except HawkerError as error:
            if not error.retry or context.clock.monotonic() - silent_since >= SILENT_S:
                raise


async def _memory(deps: FlowDeps, move: MoveRecord) -> KeptMemory | None:
    """That of a machine which is moved suspended. Raises `SnapshotLost` when it is not any more."""
    if move.memory is None:
        return None
    record = _machine(deps, move)
    found = await kept_memory(deps, record)
    if record is None or found is None or found.running.instance_id != move.memory.running.instance_id:
        raise SnapshotLost("the machine is not suspended any more")
    return replace(found, image=await image_digest(deps, record))


def _machine(deps: FlowDeps, move: MoveRecord) -> MachineRecord | None:
    return None if move.machine is None else deps.store.get(MACHINES, move.machine)


def _busy_volume(context: Context[MoveInput], move: MoveRecord) -> bool:
    """Whether a snapshot, an extension or the like is under way at the volume."""
    run = None if move.volume is None else journal.active(context.deps.store, volume_resource(move.volume))
    return run is not None and run.id != context.run_id


async def undo_prepare(context: Context[MoveInput]) -> None:
    """A destination that is not reached asks here by itself, and hears that the move has ended."""
    move = context.deps.store.get(MOVES, context.run_id)
    if move is not None and move.to and not is_granted_by(context.deps.store, move):
        await _drop(context, move.to)


async def _drop(context: Context[MoveInput], node: NodeId) -> None:
    try:
        await context.deps.others.there.caller(node).call(DROP_INCOMING, params=MoveParams(move_id=context.run_id))
    except HawkerError:
        return


async def warm(context: Context[MoveInput]) -> Outcome:
    """The destination has the files, but for what changes now, and the machine runs on."""
    deps, move = context.deps, move_in(context)
    if move.mode is MoveMode.COLD or not unit_files(move):
        while _is_paused(context):
            await context.clock.sleep(LOOK_S)
        return Done()
    ran = _instance(deps, move)
    if ran is None:
        return Abort(Unavailable(_EXITED))
    for each in unit_files(move):
        if move.state is MoveState.PREPARING:
            await trim(deps, each)
        await files_of(deps).watch(each, new_ulid(context.clock))
    context.reach("watched")
    if move.state is MoveState.PREPARING:
        stored = await stored_bytes(deps, move)
        await deps.store.write(lambda tx: _warming(tx, deps, move, stored), Durability.DURABLE)

    async def runs_on() -> str:
        for each in unit_files(move):
            await files_of(deps).keep_watch(each)
        return "" if _instance(deps, move) == ran else _EXITED

    theirs = await _filled(context, move, _WARM, PREPARE_S, runs_on)
    if isinstance(theirs, str):
        return _unfilled(context, theirs)
    for each in unit_files(move):
        await files_of(deps).settle(each)  # or the stop would wait for it
    return Done()


async def undo_warm(context: Context[MoveInput]) -> None:
    move = context.deps.store.get(MOVES, context.run_id)
    for each in () if move is None else unit_files(move):
        await files_of(context.deps).unwatch(each)


def _instance(deps: FlowDeps, move: MoveRecord) -> InstanceId | None:
    """Which one runs; it alone has the files open."""
    record = _machine(deps, move)
    if record is None or record.state is not State.STARTED or record.running is None:
        return None
    return record.running.instance_id


def _warming(tx: Tx, deps: FlowDeps, move: MoveRecord, stored: int) -> None:
    changed = change_move(tx, deps, move.id, state=MoveState.WARMING, stored_bytes=stored, warm_at=deps.clock.now())
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None:
        deps.table.change(tx, record, migrated("copying", changed))


async def stop(context: Context[MoveInput]) -> Outcome:
    """End the instance, as a stop does."""
    deps, move = context.deps, move_in(context)
    if move.state in UNTOUCHED:
        waits = await turn_lost(deps, move)
        not_now = _later(waits) if waits else await deps.store.write(lambda tx: _stopping(tx, deps, move))
        if not_now is not None:
            return not_now
    context.reach("intended")
    if move.machine is None or move.memory is not None:
        return Done()
    return await halt(context)


async def undo_stop(context: Context[MoveInput]) -> None:
    """Takes the stop back. A machine that was suspended stays so."""
    move = context.deps.store.get(MOVES, context.run_id)
    if move is None or move.memory is None:
        await undo_halt(context)


_DROPPED = "it was suspended, and its memory is dropped for the move: its next start is a cold one"


def _later(why: str) -> Outcome:
    return Retry(why, after_s=_LOOK_PAUSED_S)


def _stopping(tx: Tx, deps: FlowDeps, move: MoveRecord) -> Outcome | None:
    """None, or why not: it was paused meanwhile, or the machine has ended by itself and is not to run any more. What
    its end asked for then goes on."""
    now, found = deps.clock.now(), tx.get(MOVES, move.id)
    if found is not None and found.is_paused(now):
        return _later("the move was paused")
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if move.ran and not move.back_of and (record is None or record.state not in _TO_RUN):
        return Abort(Unavailable(_EXITED))
    change_move(tx, deps, move.id, state=MoveState.STOPPING, away_at=now if move.ran else None)
    if record is not None and record.state in (State.STARTED, State.SUSPENDED) and move.memory is None:
        dropped = Detail(error=_DROPPED) if move.drops_memory else None
        deps.table.change(tx, record, Happened("stop", "stopping", "user", dropped), state=State.STOPPING, awaited=None)
    return None


async def close(context: Context[MoveInput]) -> Outcome:
    """Closes the files: nobody here writes to them from now on, and what was written is on disk."""
    deps, move = context.deps, move_in(context)
    record = _machine(deps, move)
    if record is not None:
        if move.memory is None:
            if deps.rootfs is not None:
                await deps.rootfs.unmount(record.id, kept=kept_layer(record))
            await unmount_volume(deps, record)
        context.reach("unmounted")
        if deps.networks is not None:
            await deps.networks.delete(record.id)
        await deps.enforcer.renew_soon(record.app, without={record.id})
    if _busy_volume(context, move):
        return Retry("something else is under way at the volume", after_s=0.5)
    try:
        memory = await _memory(deps, move)
    except SnapshotLost as error:
        return Abort(error)
    if memory != move.memory:
        return Abort(Unavailable("the machine's memory is not what it was when the move began"))
    if await kept_root(deps, record, memory) != move.root:
        return Abort(Unavailable("the machine's root filesystem was made or has grown since the move began"))
    for each in unit_files(move):
        await files_of(deps).flush(each)
    stored = await stored_bytes(deps, move)
    return Done(commit=lambda tx: _closed(tx, deps, move, stored))


def _closed(tx: Tx, deps: FlowDeps, move: MoveRecord, stored: int) -> None:
    changed = change_move(tx, deps, move.id, state=MoveState.COPYING, stored_bytes=stored, closed_at=deps.clock.now())
    record = None if move.machine is None else tx.get(MACHINES, move.machine)
    if record is not None and move.memory is not None:
        deps.table.change(tx, record, migrated("copying", changed))  # it stays suspended, and nobody may resume it
    elif record is not None:
        deps.table.change(tx, record, migrated("stopped", changed), state=State.STOPPED)


async def copy(context: Context[MoveInput]) -> Outcome:
    """The destination has it all, on its disk, and has compared it with what is here."""
    move = move_in(context)
    if not unit_files(move):
        return Done()
    theirs = await _filled(context, move, _COPIED, SILENT_S)
    return _unfilled(context, theirs) if isinstance(theirs, str) else Done()


def _unfilled(context: Context[MoveInput], why: str) -> Outcome:
    """What this node's own disk said comes before what the destination made of it."""
    damage = move_in(context).damage
    return Abort(Damaged(damage) if damage else Unavailable(why))


_COPIED = frozenset({IncomingState.COPIED})
_WARM = _COPIED | {IncomingState.WARM}


async def _filled(
    context: Context[MoveInput],
    move: MoveRecord,
    wanted: frozenset[IncomingState],
    patience_s: float,
    meanwhile: Callable[[], Awaitable[str]] | None = None,
) -> IncomingMove | str:
    """What the destination has, once it is what is `wanted`; or why it will not be, as `meanwhile` may say."""
    deps, params = context.deps, MoveParams(move_id=move.id)
    seen, last, silent = (0, 0, 0), context.clock.monotonic(), ""
    look_s = _LOOK_AWAY_S if wanted is _COPIED else LOOK_S
    while context.clock.monotonic() - last < patience_s:
        ended = "" if meanwhile is None else await meanwhile()
        if ended:
            return ended
        await context.clock.sleep(look_s)
        paused = _is_paused(context)
        last = context.clock.monotonic() if paused else last
        try:
            found = await deps.others.there.caller(move.to).call(SHOW_INCOMING, params=params)
        except NotFound:
            return f"node {move.to} does not know the move any more"
        except HawkerError as error:
            silent = str(error)
            continue
        if found.state in wanted and not paused:
            return found
        if found.state not in FILLING | wanted:
            return found.reason or f"it is {found.state} at node {move.to}"
        reached = (found.copied_bytes, found.compared_bytes, move_in(context).lost_bytes)
        if reached > seen:
            seen, last = reached, context.clock.monotonic()
            note = partial(change_move, deps=deps, move_id=move.id, copied_bytes=found.copied_bytes)
            await deps.store.write(note, Durability.ORDERED)
    return silent or f"node {move.to} has copied nothing more for {patience_s:g} s"


def _is_paused(context: Context[MoveInput]) -> bool:
    return move_in(context).is_paused(context.clock.now())


async def grant(context: Context[MoveInput]) -> Outcome:
    """The destination owns it from this commit on."""
    gone = await taken_back(context.deps, move_in(context).unit)
    if gone is not None:
        return gone
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
    change_move(tx, deps, move.id, state=MoveState.GRANTED, granted_at=now)


def reopen(tx: Tx, ended: EndedRun[MoveInput]) -> None:
    """However a move ended before its grant: the machine is as it was."""
    if ended.ending is not Ending.DONE:
        give_back(tx, ended.deps, ended.run_id, ended.error or "cancelled")


_MEETING = Backoff(attempts=15, first_s=0.2, cap_s=2.0)  # of a daemon that is on its way up

MOVE = Flow(
    name="move",
    input=MoveInput,
    steps=(
        Step("turn", turn, undo=undo_turn, timeout_s=PATIENCE_S + 60, backoff=_MEETING, durable=True, waits=True),
        Step("choose", choose, backoff=_MEETING),
        Step("prepare", prepare, undo=undo_prepare, timeout_s=86_400, backoff=_MEETING, durable=True, waits=True),
        Step("warm", warm, undo=undo_warm, timeout_s=7 * 86_400.0, backoff=Backoff(attempts=5), waits=True,
             points=("watched",)),
        Step("stop", stop, undo=undo_stop, undo_backoff=PATIENT, timeout_s=LONGEST_STOP_S + 30, backoff=OFTEN,
             durable=True, points=("intended", "asked")),
        Step("close", close, timeout_s=600, backoff=OFTEN, durable=True,
             points=("detached", "unmounted", "unrouted", "unlinked", "unbound")),
        Step("copy", copy, timeout_s=86_400, backoff=Backoff(attempts=2), waits=True),
        Step("grant", grant, durable=True),
    ),
    on_end=reopen,
)  # fmt: skip
