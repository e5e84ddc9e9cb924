"""Flow `suspend`: the instance is held still, and keeps all that it has: memory, files, connections, room.

Its processes are frozen, or its memory is written to a file and none are left, as its driver can.

One that ends meanwhile is left to the supervisor; one that cannot be held still goes on.
"""

import msgspec

from hawker.errors import NotFound, SnapshotLost, WrongState
from hawker.fsm.contract import Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.ids import InstanceId
from hawker.machine import State
from hawker.record.machine import MACHINES, Detail, MachineRecord, machine_id_of
from hawker.runtime.driver import Suspension
from hawker.store.contract import Reader, Tx
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import runs
from hawker.worker.lifecycle.stop import PATIENT
from hawker.worker.moves.ownership import taken_back
from hawker.worker.table import Happened

_ENDED_FIRST = "the instance ended before it was suspended"


class HoldInput(msgspec.Struct, frozen=True, kw_only=True):
    """The instance that is meant; another instance is none of the run's business."""

    instance_id: InstanceId


async def freeze(context: Context[HoldInput]) -> Outcome:
    if find_meant(context.deps.store, context, State.SUSPENDING) is None:
        return Done()
    try:
        await context.deps.driver.suspend(machine_id_of(context))
    except (NotFound, WrongState):
        return Done(commit=lambda tx: _go_on(tx, context, _ENDED_FIRST))
    return Done(commit=lambda tx: _suspended(tx, context))


def _suspended(tx: Tx, context: Context[HoldInput]) -> None:
    record = find_meant(tx, context, State.SUSPENDING)
    if record is not None:
        context.deps.table.change(tx, record, Happened("suspend", "suspended"), state=State.SUSPENDED)


def _go_on(tx: Tx, ended: Context[HoldInput] | EndedRun[HoldInput], why: str) -> None:
    deps: FlowDeps = ended.deps
    record = find_meant(tx, ended, State.SUSPENDING)
    if record is not None:
        happened = Happened("suspend", "failed", detail=Detail(error=why))
        deps.table.change(tx, record, happened, state=State.STARTED)


def keep_running(tx: Tx, ended: EndedRun[HoldInput]) -> None:
    """Has the machine run on. It could not be suspended, and its history says why."""
    if ended.ending is not Ending.DONE:
        _go_on(tx, ended, ended.error or "cancelled")


def find_meant(reader: Reader, run: Context[HoldInput] | EndedRun[HoldInput], state: State) -> MachineRecord | None:
    """The machine, if it still is in the state that the run was accepted with, and has that instance."""
    record = reader.get(MACHINES, run.resource.id)
    if record is None or record.state is not state or not runs(record):
        return None
    assert record.running is not None
    return record if record.running.instance_id == run.input.instance_id else None


LONGEST_S = 1800.0
"""The seconds that a large memory takes at most to be written to a slow disk, or read from it."""

FREEZE = Step("freeze", freeze, timeout_s=LONGEST_S, points=("frozen", "saved", "published"))
"""The step that freezes an instance. It has no undo: a driver that fails lets the instance go on, whoever overtakes
this ends it, and what is left over by an operator's abort is mended by the reconciler."""

SUSPEND = Flow(name="suspend", input=HoldInput, steps=(FREEZE,), on_end=keep_running)


# Flow `resume`: a suspended machine is started. Its instance goes on where it was held still; no new one is made.
# Unless the memory that it was to go on with is lost: then the instance has ended, which the supervisor records and
# follows with a cold start.


async def plug(context: Context[HoldInput]) -> Outcome:
    """Makes anew what a reboot of the host took from a machine that outlived it: its network. It is as it was
    before."""
    deps, record = context.deps, find_meant(context.deps.store, context, State.STARTING)
    gone = await taken_back(deps, context.resource.id)
    if gone is not None:
        return gone
    if record is not None and deps.networks is not None and deps.driver.features.suspend is Suspension.SNAPSHOT:
        await deps.networks.ensure(record.id, record.network)
        await deps.enforcer.renew_for(record.app)
    return Done()


async def thaw(context: Context[HoldInput]) -> Outcome:
    """An instance that has ended counts as resumed for the moment: the supervisor records its end and says what is
    next. But not one whose memory was lost: nobody is told that it goes on."""
    if find_meant(context.deps.store, context, State.STARTING) is None:
        return Done()
    try:
        await context.deps.driver.resume(machine_id_of(context))
    except SnapshotLost:
        return Done()
    except (NotFound, WrongState):
        if await _was_lost(context):
            return Done()
    pid = (await context.deps.driver.inspect(machine_id_of(context))).pid
    return Done(commit=lambda tx: _resumed(tx, context, pid))


async def _was_lost(context: Context[HoldInput]) -> bool:
    """Also by an earlier try."""
    seen = await context.deps.driver.inspect(machine_id_of(context))
    return seen.exit is not None and bool(seen.exit.fault)


def _resumed(tx: Tx, context: Context[HoldInput], pid: int | None) -> None:
    record = find_meant(tx, context, State.STARTING)
    if record is not None and record.running is not None:
        event = Happened("start", "started", detail=Detail(resumed=True))
        running = msgspec.structs.replace(record.running, pid=pid or record.running.pid)
        context.deps.table.change(tx, record, event, state=State.STARTED, running=running)


def stay_suspended(tx: Tx, ended: EndedRun[HoldInput]) -> None:
    """Leaves the machine suspended. It could not be resumed, and its history says why."""
    deps: FlowDeps = ended.deps
    record = find_meant(tx, ended, State.STARTING)
    if ended.ending is not Ending.DONE and record is not None:
        happened = Happened("start", "failed", detail=Detail(error=ended.error or "cancelled"))
        deps.table.change(tx, record, happened, state=State.SUSPENDED)


PLUG = Step("plug", plug, timeout_s=30, backoff=PATIENT)
THAW = Step("thaw", thaw, timeout_s=LONGEST_S, points=("thawed", "restored", "forgotten"), backoff=PATIENT)

RESUME = Flow(name="resume", input=HoldInput, steps=(PLUG, THAW), on_end=stay_suspended)
