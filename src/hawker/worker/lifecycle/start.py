"""Flow `start`: a fresh root filesystem, the network, a new instance. Its steps also end create, restart, update.

A launch that the machine no longer awaits, because it was stopped or begun anew meanwhile, leaves everything as it is.
"""

import msgspec

from hawker.fsm.contract import Backoff, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.host.resolver import nameservers
from hawker.ids import InstanceId
from hawker.machine import GONE, State
from hawker.node import Resources
from hawker.runtime.driver import Inspection, Phase
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, Deps, machine_id_of, machine_in, machine_of
from hawker.worker.lifecycle.environment import Surroundings, instance_spec, resources
from hawker.worker.lifecycle.pull import PullInput, image_resource
from hawker.worker.records import MACHINES, Detail, MachineRecord, Running
from hawker.worker.table import Happened

LAUNCHABLE = frozenset({State.CREATED, State.STARTING, State.RESTARTING, State.UPDATING, State.REPLACING})


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a flow's input that its launching steps read. `launch` False prepares and leaves the machine off."""

    instance_id: InstanceId
    launch: bool = True


async def have_image(context: Context[Launch]) -> None:
    """At once when it is cached, else through the shared `pull` run."""
    wanted = machine_of(context).image
    if context.deps.images.find(wanted.digest) is None:
        await context.child("pull", image_resource(wanted.digest), PullInput(image=wanted))
    context.deps.images.mark_used(wanted.digest)


async def rootfs(context: Context[Launch]) -> Outcome:
    """Mount the image below a new writable layer; a machine that is to be off has none."""
    deps, record = context.deps, _awaiting(context)
    if record is None:
        return Done()
    if context.input.launch:
        await have_image(context)
    if deps.rootfs is None:
        return Done()
    if not context.input.launch:
        await deps.rootfs.unmount(record.id)
        return Done()
    path = await deps.rootfs.mount(record.id, context.input.instance_id, record.image.digest)
    return Done(result=path)


async def undo_rootfs(context: Context[Launch]) -> None:
    """Also what a later step made before a crash that lost its record."""
    await undo_launch(context)
    if context.deps.rootfs is not None and not _still_runs(context):
        await context.deps.rootfs.unmount(machine_id_of(context))


async def network(context: Context[Launch]) -> Outcome:
    """Make the namespace, its addresses and its routes, unless they are there."""
    deps, record = context.deps, _awaiting(context)
    if deps.networks is None or record is None:
        return Done()
    return Done(result=await deps.networks.ensure(record.id, record.network))


async def launch(context: Context[Launch]) -> Outcome:
    """Start the instance and record what runs; a workload that could not be executed is left to the supervisor."""
    if not context.input.launch:
        return Done(commit=lambda tx: _rest(tx, context))
    deps, record = context.deps, _awaiting(context)
    if record is None:
        return await _give_way(context)
    image = deps.images.find(record.image.digest)
    assert image is not None, "an image in use is never removed"
    spec = instance_spec(record, context.input.instance_id, image.config, _surroundings(context, record))
    await deps.driver.prepare(spec)
    context.reach("prepared")
    seen = await deps.driver.start(spec)
    return Done(result=seen.pid, commit=lambda tx: _started(tx, context, seen))


async def undo_launch(context: Context[Launch]) -> None:
    """A launch that was recorded before the run was told to turn back is left to whoever told it."""
    if not _still_runs(context):
        await context.deps.driver.destroy(machine_id_of(context))


async def _give_way(context: Context[Launch]) -> Outcome:
    """Whoever overtook this launch goes on with the machine; it must hear of an instance that a try before a crash may
    have begun."""
    seen = await context.deps.driver.inspect(machine_id_of(context))
    begun = seen.instance_id == context.input.instance_id and seen.phase in (Phase.RUNNING, Phase.EXITED)
    return Done(commit=lambda tx: _started(tx, context, seen) if begun else _forget_previous(tx, context))


def _forget_previous(tx: Tx, context: Context[Launch]) -> None:
    record = tx.get(MACHINES, machine_id_of(context))
    if record is not None and record.previous is not None:
        context.deps.table.change(tx, record, previous=None)


def _awaiting(context: Context[Launch]) -> MachineRecord | None:
    """The machine, if this is the launch that it awaits; it may even be gone."""
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    return record if record is not None and _is_awaited(record, context.input) else None


def _is_awaited(record: MachineRecord, input: Launch) -> bool:
    return record.awaited == input.instance_id


def _still_runs(context: Context[Launch]) -> bool:
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    return record is not None and runs(record)


def _surroundings(context: Context[Launch], record: MachineRecord) -> Surroundings:
    deps, settings = context.deps, context.deps.settings
    return Surroundings(
        rootfs=context.result("rootfs", str) if context.deps.rootfs is not None else None,
        netns=context.result("network", str) if context.deps.networks is not None else None,
        nameservers=settings.nameservers or nameservers(),
        pids=settings.machine_pids,
        output_bytes=settings.logs_mib << 20,
        secrets=deps.secrets.pinned(deps.store, record.id, record.version),
    )


def _started(tx: Tx, context: Context[Launch], seen: Inspection) -> None:
    table, record = context.deps.table, machine_in(tx, context)
    executed = seen.phase is Phase.RUNNING or (seen.exit is not None and not seen.exit.reason)
    running = Running(
        instance_id=context.input.instance_id, pid=seen.pid, started_at=seen.started_at if executed else None
    )
    if record.state not in LAUNCHABLE or not _is_awaited(record, context.input):
        table.change(tx, record, running=running, previous=None)
        return
    table.change(
        tx,
        record,
        Happened("start", "started") if executed else None,
        state=State.STARTED if executed else State.STARTING,
        running=running,
        holds=resources(record.config, context.deps.settings.machine_disk_mib),
        previous=None,
        awaited=None,
    )


def _rest(tx: Tx, context: Context[Launch]) -> None:
    record = machine_in(tx, context)
    if record.state in GONE or not _is_awaited(record, context.input):
        return _forget_previous(tx, context)
    context.deps.table.change(
        tx,
        record,
        Happened("stop", "stopped"),
        state=State.STOPPED,
        holds=Resources(),
        previous=None,
        awaited=None,
    )


def mark_failed(tx: Tx, ended: EndedRun[Launch]) -> None:
    """A machine that could not be started is off, and its history says why. One whose old instance could not even be
    ended still runs."""
    deps: Deps = ended.deps
    record = tx.get(MACHINES, ended.resource.id)
    if ended.ending is Ending.DONE or record is None or not _is_awaited(record, ended.input):
        return
    detail = Detail(error=ended.error or "cancelled")
    if runs(record):
        happened = Happened("restart", "failed", detail=detail)
        deps.table.change(tx, record, happened, state=State.STARTED, awaited=None)
        return
    deps.table.change(
        tx,
        record,
        Happened("start", "failed", detail=detail),
        state=State.FAILED,
        holds=Resources(),
        previous=None,
        awaited=None,
    )


def runs(record: MachineRecord) -> bool:
    return record.running is not None and record.running.exit is None


PATIENT = Backoff(attempts=20)
"""Of what takes back: a machine whose undo is given up can neither be used nor destroyed until an operator comes."""

_TAKEN_BACK = ("undo.killed", "undo.cleared")
ROOTFS = Step(
    "rootfs",
    rootfs,
    undo=undo_rootfs,
    undo_backoff=PATIENT,
    timeout_s=3600,
    points=("detached", "imaged", "layered", *_TAKEN_BACK, "undo.detached"),
)
NETWORK = Step("network", network, timeout_s=30, points=("bridged", "linked"))
LAUNCH = Step(
    "launch",
    launch,
    undo=undo_launch,
    undo_backoff=PATIENT,
    timeout_s=60,
    backoff=Backoff(attempts=3),
    points=("killed", "cleared", "laid_out", "prepared", "creating", "spawned", *_TAKEN_BACK),
)
LAUNCHING = (ROOTFS, NETWORK, LAUNCH)

START = Flow(name="start", input=Launch, steps=LAUNCHING, on_end=mark_failed)
