"""Flow `resume`: a suspended machine is started. Its instance goes on where it was held still; no new one is made.

Unless the memory that it was to go on with is lost: then the instance has ended, which the supervisor records and
follows with a cold start.
"""

import msgspec

from hawker.errors import NotFound, SnapshotLost, WrongState
from hawker.fsm.contract import Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.machine import State
from hawker.record.machine import Detail
from hawker.runtime.driver import Suspension
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, Deps, machine_id_of
from hawker.worker.lifecycle.stop import PATIENT
from hawker.worker.lifecycle.suspend import LONGEST_S, Hold, find_meant
from hawker.worker.table import Happened


async def plug(context: Context[Hold]) -> Outcome:
    """What a reboot of the host took from a machine that outlived it: its network. It is as it was before."""
    deps, record = context.deps, find_meant(context.deps.store, context, State.STARTING)
    if record is not None and deps.networks is not None and deps.driver.features.suspend is Suspension.SNAPSHOT:
        await deps.networks.ensure(record.id, record.network)
        await deps.fences.renew_for(record.app)
    return Done()


async def thaw(context: Context[Hold]) -> Outcome:
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


async def _was_lost(context: Context[Hold]) -> bool:
    """Also by an earlier try."""
    seen = await context.deps.driver.inspect(machine_id_of(context))
    return seen.exit is not None and bool(seen.exit.fault)


def _resumed(tx: Tx, context: Context[Hold], pid: int | None) -> None:
    record = find_meant(tx, context, State.STARTING)
    if record is not None and record.running is not None:
        event = Happened("start", "started", detail=Detail(resumed=True))
        running = msgspec.structs.replace(record.running, pid=pid or record.running.pid)
        context.deps.table.change(tx, record, event, state=State.STARTED, running=running)


def stay_suspended(tx: Tx, ended: EndedRun[Hold]) -> None:
    """It could not be resumed, and its history says why."""
    deps: Deps = ended.deps
    record = find_meant(tx, ended, State.STARTING)
    if ended.ending is not Ending.DONE and record is not None:
        happened = Happened("start", "failed", detail=Detail(error=ended.error or "cancelled"))
        deps.table.change(tx, record, happened, state=State.SUSPENDED)


PLUG = Step("plug", plug, timeout_s=30, backoff=PATIENT)
THAW = Step("thaw", thaw, timeout_s=LONGEST_S, points=("thawed", "restored", "forgotten"), backoff=PATIENT)

RESUME = Flow(name="resume", input=Hold, steps=(PLUG, THAW), on_end=stay_suspended)
