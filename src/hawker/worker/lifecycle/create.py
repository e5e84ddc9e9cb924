"""Flow `create`: the image, then as `start`. A machine that cannot be prepared is taken back whole."""

from hawker.fsm.contract import Backoff, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.machine import GONE, State
from hawker.record.machine import MACHINES, Detail, machine_id_of
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, FlowDeps, drain_output, machine_in, machine_of
from hawker.worker.lifecycle.start import LAUNCHING, PATIENT, Launch, have_image, runs
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.table import Happened


async def image(context: Context[Launch]) -> Outcome:
    await have_image(context)
    return Done(commit=lambda tx: _starting(tx, context)) if context.input.launch else Done()


def _starting(tx: Tx, context: Context[Launch]) -> None:
    record = machine_in(tx, context)
    if record.state is State.CREATED:
        context.deps.table.change(tx, record, state=State.STARTING)


async def undo_image(context: Context[Launch]) -> None:
    """Take back what is left of the later steps; the image stays, it may serve others."""
    deps, machine_id = context.deps, machine_id_of(context)
    if runs(machine_of(context)):
        return
    await drain_output(context)
    await deps.driver.destroy(machine_id)
    await unmount_volume(deps, machine_of(context))
    if deps.rootfs is not None:
        await deps.rootfs.remove(machine_id)
    if deps.networks is not None:
        await deps.networks.delete(machine_id)
    await deps.fences.renew_soon(machine_of(context).app, without={machine_id})


def take_back(tx: Tx, ended: EndedRun[Launch]) -> None:
    """A create that failed leaves no machine, only a history that says why."""
    deps: FlowDeps = ended.deps
    record = tx.get(MACHINES, ended.resource.id)
    if ended.ending is Ending.DONE or record is None or record.state in GONE or runs(record):
        return
    detail = Detail(error=ended.error or "cancelled")
    deps.table.remove(tx, record, Happened("launch", "launch_failed", detail=detail))


_TAKEN_BACK = (
    "undo.killed",
    "undo.cleared",
    "undo.given_back",
    "undo.detached",
    "undo.unrouted",
    "undo.unlinked",
    "undo.unbound",
)
IMAGE = Step(
    "image",
    image,
    undo=undo_image,
    undo_backoff=PATIENT,
    timeout_s=3600,
    backoff=Backoff(attempts=2),
    points=("child_accepted", *_TAKEN_BACK),
)

CREATE = Flow(name="create", input=Launch, steps=(IMAGE, *LAUNCHING), on_end=take_back)
