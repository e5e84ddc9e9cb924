"""Flow `volume_snapshot`: what a volume holds at one moment, as a file that outlives the volume.

It queues at its volume, behind whatever changes that one's size or ends it. One that fails leaves no file, and a record
that says so: whoever asked for it must be able to see that it is not there.
"""

import msgspec

from hawker.fsm.contract import Abort, Backoff, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import GONE_SNAPSHOTS, SNAPSHOTS, VOLUMES, SnapshotStatus, VolumeState
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, Deps
from hawker.worker.volumes.copies import Copies
from hawker.worker.volumes.retention import kept_until


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """Which snapshot; the run's resource is the volume."""

    snapshot: SnapshotId


async def begin(context: Context[Take]) -> Outcome:
    """From here on it is the volume of now that counts."""
    volume = context.deps.store.get(VOLUMES, context.resource.id)
    if volume is None or volume.state is VolumeState.DESTROYED:
        return Abort(f"volume {context.resource.id} is gone")
    return Done(commit=lambda tx: _begun(tx, context))


def _begun(tx: Tx, context: Context[Take]) -> None:
    snapshot_id = context.input.snapshot
    now, volume, record = context.clock.now(), tx.get(VOLUMES, context.resource.id), tx.get(SNAPSHOTS, snapshot_id)
    assert volume is not None, "it goes by a run of its own, which waits for this one"
    assert record is not None, "a snapshot that is being taken is not removed"
    until = kept_until(now, record.retention_days)
    _change(tx, context, status=SnapshotStatus.RUNNING, volume_gb=volume.made_gb, created_at=now, kept_until=until)


async def copy(context: Context[Take]) -> Outcome:
    """The bytes, of one moment."""
    size = await _copies(context).take(VolumeId(context.resource.id), context.input.snapshot)
    return Done(result=size)


async def seal(context: Context[Take]) -> Outcome:
    """From here on it counts."""
    size = context.result("copy", int)
    return Done(commit=lambda tx: _change(tx, context, status=SnapshotStatus.CREATED, size=size))


def note_failure(tx: Tx, ended: EndedRun[Take]) -> None:
    """Unless it counts. What there is of its file is left to the keeper."""
    record = tx.get(SNAPSHOTS, ended.input.snapshot)
    if ended.ending is not Ending.DONE and record is not None and record.status is not SnapshotStatus.CREATED:
        failed = msgspec.structs.replace(record, status=SnapshotStatus.FAILED, size=0)
        tx.put(SNAPSHOTS, record.id, failed)
        tx.put(GONE_SNAPSHOTS, record.id, failed)


def _change(tx: Tx, context: Context[Take], **fields: object) -> None:
    record = tx.get(SNAPSHOTS, context.input.snapshot)
    if record is not None:
        tx.put(SNAPSHOTS, record.id, msgspec.structs.replace(record, **fields))


def _copies(context: Context[Take]) -> Copies:
    deps: Deps = context.deps
    assert deps.copies is not None, "only a node with volumes accepts this flow"
    return deps.copies


_TRIES = Backoff(attempts=5, first_s=1.0, cap_s=30.0)

VOLUME_SNAPSHOT = Flow(
    name="volume_snapshot",
    input=Take,
    steps=(
        Step("begin", begin),
        Step("copy", copy, timeout_s=3600, queue="copies", backoff=_TRIES,
             points=("frozen", "drafted")),
        Step("seal", seal),
    ),
    on_end=note_failure,
)  # fmt: skip
