"""Flows of a volume by itself: `volume_create`, `volume_extend`, `volume_destroy`.

A volume's file is made under another name and published whole; it is removed only by the flow that was told to, once
nobody has the volume and its time is over.
"""

import msgspec

from hawker.fsm.contract import Backoff, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.ids import VolumeId
from hawker.record.volume import IN_MAKING, VOLUMES, VolumeRecord, VolumeState
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, Deps
from hawker.worker.volumes.disks import Disks, disk_of


class VolumeInput(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to say: the volume's record has it all."""


async def make(context: Context[VolumeInput]) -> Outcome:
    """Have the file, with an empty filesystem."""
    record = volume_in(context)
    await disks_of(context).make(disk_of(record))
    return Done(commit=lambda tx: made(tx, context))


def made(tx: Tx, context: Context[VolumeInput]) -> None:
    """The file is whole and of its size."""
    record = context.deps.volumes.get(tx, volume_id_in(context))
    filled = record.state in IN_MAKING or record.state is VolumeState.HYDRATING
    state = VolumeState.CREATED if filled else record.state
    context.deps.volumes.change(tx, record, state=state, made_gb=record.size_gb)


async def unmake(context: Context[VolumeInput]) -> None:
    """Nothing was ever in it: no machine is launched before it is made."""
    await disks_of(context).remove(volume_id_in(context))


def take_back(tx: Tx, ended: EndedRun[VolumeInput]) -> None:
    """A volume that could not be made holds nothing; a machine that waits for it hears of that."""
    deps: Deps = ended.deps
    record = tx.get(VOLUMES, ended.resource.id)
    if ended.ending is not Ending.DONE and record is not None:
        deps.volumes.remove(tx, record)


async def grow(context: Context[VolumeInput]) -> Outcome:
    """File and filesystem, also while a machine writes to it."""
    record = volume_in(context)
    grown = await disks_of(context).grow(disk_of(record))
    return Done(result=grown, commit=lambda tx: _grown(tx, context, record, grown))


def _grown(tx: Tx, context: Context[VolumeInput], seen: VolumeRecord, grown: bool) -> None:
    """Unless it is to grow further: then by the run that comes next."""
    record = context.deps.volumes.get(tx, seen.id)
    done = record.size_gb == seen.size_gb and record.state is VolumeState.EXTENDING
    state = VolumeState.CREATED if done else record.state
    context.deps.volumes.change(tx, record, state=state, made_gb=seen.size_gb, behind=not grown)


async def remove(context: Context[VolumeInput]) -> Outcome:
    """The file, for good."""
    await disks_of(context).remove(volume_id_in(context))
    return Done()


async def forget(context: Context[VolumeInput]) -> Outcome:
    return Done(commit=lambda tx: _forget(tx, context))


def _forget(tx: Tx, context: Context[VolumeInput]) -> None:
    context.deps.volumes.remove(tx, context.deps.volumes.get(tx, volume_id_in(context)))


def volume_id_in(context: Context[VolumeInput]) -> VolumeId:
    return VolumeId(context.resource.id)


def volume_in(context: Context[VolumeInput]) -> VolumeRecord:
    """As last committed. Raises `NotFound`."""
    return context.deps.volumes.get(context.deps.store, volume_id_in(context))


def disks_of(context: Context[VolumeInput]) -> Disks:
    assert context.deps.disks is not None, "only a node with volumes accepts flows of volumes"
    return context.deps.disks


PATIENT = Backoff(attempts=100, cap_s=30.0)
"""Of what was promised: a disk that is full for a while delays it. After that the reconciler begins it anew."""

VOLUME_CREATE = Flow(
    name="volume_create",
    input=VolumeInput,
    steps=(
        Step("make", make, undo=unmake, undo_backoff=PATIENT, timeout_s=600,
             points=("drafted", "formatted", "published", "undo.detached", "undo.removed")),
    ),
    on_end=take_back,
)  # fmt: skip

VOLUME_EXTEND = Flow(
    name="volume_extend",
    input=VolumeInput,
    steps=(Step("grow", grow, timeout_s=1800, backoff=PATIENT, points=("enlarged", "checked", "mounted", "grown")),),
)

VOLUME_DESTROY = Flow(
    name="volume_destroy",
    input=VolumeInput,
    steps=(
        Step("remove", remove, timeout_s=600, backoff=PATIENT, points=("detached", "removed")),
        Step("forget", forget),
    ),
)
