"""Flows that make a volume from what there is: `volume_restore` from a snapshot, `volume_fork` from another volume.

As with an empty one, its file is published whole. The copy shares what it can with where it is from, is made as large
as it was ordered, and from then on has nothing to do with it.
"""

from hawker.fsm.contract import Backoff, Done, Flow, Outcome, Step
from hawker.record.volume import IN_MAKING, VolumeState
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context
from hawker.worker.lifecycle.volume import (
    PATIENT,
    VolumeInput,
    disks_of,
    made,
    take_back,
    unmake,
    volume_id_in,
    volume_in,
)
from hawker.worker.volumes.copies import Copies
from hawker.worker.volumes.disks import disk_of


async def prepare_restore(context: Context[VolumeInput]) -> Outcome:
    """It is seen what is being done."""
    return Done(commit=lambda tx: _turn(tx, context, VolumeState.RESTORING))


async def prepare_fork(context: Context[VolumeInput]) -> Outcome:
    return Done(commit=lambda tx: _turn(tx, context, VolumeState.ENABLING_REMOTE_EXPORT))


async def fill(context: Context[VolumeInput]) -> Outcome:
    """Have the file. A fork may be had by a machine from here on: it is whole, if not yet as large as it will be."""
    record, copies = volume_in(context), _copies(context)
    if record.source_snapshot is not None:
        await copies.restore(record.source_snapshot, record.id)
        return Done()
    assert record.source_volume is not None, "only a volume that is made from one of them has this flow"
    await copies.fork(record.source_volume, record.id)
    return Done(commit=lambda tx: _turn(tx, context, VolumeState.HYDRATING))


async def fit(context: Context[VolumeInput]) -> Outcome:
    """File and filesystem as large as ordered."""
    record = volume_in(context)
    grown = await disks_of(context).grow(disk_of(record))

    def commit(tx: Tx) -> None:
        made(tx, context)
        if not grown:
            context.deps.volumes.change(tx, context.deps.volumes.get(tx, record.id), behind=True)

    return Done(commit=commit)


def _turn(tx: Tx, context: Context[VolumeInput], state: VolumeState) -> None:
    record = context.deps.volumes.get(tx, volume_id_in(context))
    if record.state in IN_MAKING:
        context.deps.volumes.change(tx, record, state=state)


def _copies(context: Context[VolumeInput]) -> Copies:
    assert context.deps.copies is not None, "only a node with volumes accepts flows of volumes"
    return context.deps.copies


_FILL = Step(
    "fill",
    fill,
    undo=unmake,
    undo_backoff=PATIENT,
    timeout_s=3600,
    queue="copies",
    backoff=Backoff(attempts=5, first_s=1.0, cap_s=30.0),
    points=("frozen", "drafted", "undo.detached", "undo.removed"),
)
_FIT = Step("fit", fit, timeout_s=1800, backoff=PATIENT, points=("enlarged", "checked", "mounted", "grown"))

VOLUME_RESTORE = Flow(
    name="volume_restore", input=VolumeInput, steps=(Step("prepare", prepare_restore), _FILL, _FIT), on_end=take_back
)
VOLUME_FORK = Flow(
    name="volume_fork", input=VolumeInput, steps=(Step("prepare", prepare_fork), _FILL, _FIT), on_end=take_back
)
