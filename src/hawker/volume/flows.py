"""Flows of a volume by itself: `volume_create`, `volume_extend`, `volume_destroy`.

A volume's file is made under another name and published whole; it is removed only by the flow that was told to, once
nobody has the volume and its time is over.
"""

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.errors import BadRequest, Damaged, HawkerError, NotServed, Unavailable
from hawker.fsm import journal
from hawker.fsm.contract import Abort, Backoff, Done, EndedRun, Ending, Flow, Outcome, Step, StepContext
from hawker.fsm.run import error_of
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import (
    GB,
    GONE_SNAPSHOTS,
    IN_MAKING,
    SNAPSHOTS,
    VOLUMES,
    SnapshotStatus,
    VolumeRecord,
    VolumeState,
    volume_resource,
)
from hawker.runtime.driver import Driver
from hawker.settings import Settings
from hawker.store.contract import Store, Tx
from hawker.volume.disks import Backups, Copies, Disks, disk_of
from hawker.volume.retention import kept_until
from hawker.volume.table import VolumeTable

I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class VolumeDeps(Protocol):
    """The parts of the node that flows of volumes are given. `disks` and `copies` are None on a node that has no
    volumes, `backups` on one that sends them nowhere."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def driver(self) -> Driver: ...
    @property
    def volumes(self) -> VolumeTable: ...
    @property
    def disks(self) -> Disks | None: ...
    @property
    def copies(self) -> Copies | None: ...
    @property
    def backups(self) -> Backups | None: ...


Context: TypeAlias = StepContext[VolumeDeps, I]


class VolumeInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a flow that has nothing to say: the volume's record has it all."""


_UNFINISHED = IN_MAKING | {VolumeState.HYDRATING, VolumeState.EXTENDING}


async def make(context: Context[VolumeInput]) -> Outcome:
    """Have the file, with an empty filesystem."""
    record = volume_in(context)
    await disks_of(context).make(disk_of(record))
    return Done(commit=lambda tx: _made(tx, context, record, grown=True))


def _made(tx: Tx, context: Context[VolumeInput], seen: VolumeRecord, *, grown: bool) -> None:
    """The file is whole and of the size that was seen, and its filesystem if it is `grown`. One that is to be larger by
    now grows by the run that comes next."""
    record = context.deps.volumes.get(tx, seen.id)
    done = record.size_gb == seen.size_gb and record.state in _UNFINISHED
    state = VolumeState.CREATED if done else record.state
    context.deps.volumes.change(tx, record, state=state, made_gb=seen.size_gb, behind=not grown)


async def unmake(context: Context[VolumeInput]) -> None:
    """Removes a volume whose making was given up. Nothing was ever in it: no machine is launched before it is made.

    A fork that is whole may be in use already: unless `fit` gave it up it stays, and the reconciler begins anew what
    was still to be done."""
    record = context.deps.store.get(VOLUMES, context.resource.id)
    if record is None or record.state in IN_MAKING:
        await disks_of(context).remove(volume_id_in(context))


def take_back(tx: Tx, ended: EndedRun[VolumeInput]) -> None:
    """A volume that could not be made holds nothing; a machine that waits for it hears of that."""
    deps: VolumeDeps = ended.deps
    record = tx.get(VOLUMES, ended.resource.id)
    if ended.ending is not Ending.DONE and record is not None and record.state in IN_MAKING:
        deps.volumes.remove(tx, record)


async def grow(context: Context[VolumeInput]) -> Outcome:
    """File and filesystem, also while a machine writes to it."""
    record = volume_in(context)
    grown = await disks_of(context).grow(disk_of(record))
    return Done(result=grown, commit=lambda tx: _made(tx, context, record, grown=grown))


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
    """The volume as last committed. Raises `NotFound`."""
    return context.deps.volumes.get(context.deps.store, volume_id_in(context))


def disks_of(context: Context[VolumeInput]) -> Disks:
    assert context.deps.disks is not None, "only a node with volumes accepts flows of volumes"
    return context.deps.disks


PATIENT = Backoff(attempts=100, cap_s=30.0)
"""The patience of steps that do what was promised: a disk that is full for a while delays them. After that the
reconciler begins them anew."""

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


# Flows that make a volume from what there is: `volume_restore` from a snapshot, `volume_fetch` from a backup,
# `volume_fork` from another volume.
# As with an empty one, its file is published whole. The copy shares what it can with where it is from, is made as
# large as it was ordered, and from then on has nothing to do with it.


async def prepare_restore(context: Context[VolumeInput]) -> Outcome:
    """Turns the volume's state to restoring, so that it is seen what is being done."""
    return Done(commit=lambda tx: _turn(tx, context, VolumeState.RESTORING))


async def prepare_fork(context: Context[VolumeInput]) -> Outcome:
    return Done(commit=lambda tx: _turn(tx, context, VolumeState.ENABLING_REMOTE_EXPORT))


async def fill(context: Context[VolumeInput]) -> Outcome:
    """Have the file. A fork may be had by a machine from here on: it is whole, if not yet as large as it will be."""
    record, copies = volume_in(context), _copies(context)
    if record.source_backup is not None:
        await backups_of(context.deps).restore(record.source_backup, record.id)
        return Done()
    if record.source_snapshot is not None:
        await copies.restore(record.source_snapshot, record.id)
        return Done()
    assert record.source_volume is not None, "only a volume that is made from one of them has this flow"
    await copies.fork(record.source_volume, record.id)
    made_gb = (await disks_of(context).size(record.id) or 0) // GB
    return Done(commit=lambda tx: _filled(tx, context, made_gb))


def _filled(tx: Tx, context: Context[VolumeInput], made_gb: int) -> None:
    """A machine that was given the fork while it was in the making has it from now on."""
    record = context.deps.volumes.get(tx, volume_id_in(context))
    unused = record.machine is None and record.lent_by is None
    state = VolumeState.HYDRATING if unused else VolumeState.EXTENDING
    _turn(tx, context, state, made_gb=made_gb, unused=unused)


async def fit(context: Context[VolumeInput]) -> Outcome:
    """File and filesystem as large as ordered. A damaged fork, which never can be, is given up if no machine had it."""
    record = volume_in(context)
    try:
        grown = await disks_of(context).grow(disk_of(record))
    except BadRequest:  # for all else there is somebody who can put it right: the reconciler tries again
        await context.deps.store.write(lambda tx: _give_up(tx, context))
        raise
    return Done(commit=lambda tx: _made(tx, context, record, grown=grown))


def _give_up(tx: Tx, context: Context[VolumeInput]) -> None:
    """It is in the making again, so the undo takes it back, and a machine that gets it until then waits for that. A
    daemon that dies before the undo comes to `fit` again, which fails again, or makes it after all."""
    record = tx.get(VOLUMES, context.resource.id)
    if record is not None and record.state is VolumeState.HYDRATING and record.unused:
        context.deps.volumes.change(tx, record, state=VolumeState.ENABLING_REMOTE_EXPORT)


def _turn(tx: Tx, context: Context[VolumeInput], state: VolumeState, **fields: object) -> None:
    record = context.deps.volumes.get(tx, volume_id_in(context))
    if record.state in IN_MAKING:
        context.deps.volumes.change(tx, record, state=state, **fields)


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

_FETCH = msgspec.structs.replace(_FILL, timeout_s=86_400, queue="restores")
"""A backup comes over the network, and each try begins at its first byte: it has as long as it had to be sent, and
nobody's snapshot or fork waits for its slot."""

VOLUME_RESTORE = Flow(
    name="volume_restore", input=VolumeInput, steps=(Step("prepare", prepare_restore), _FILL, _FIT), on_end=take_back
)
VOLUME_FETCH = Flow(
    name="volume_fetch", input=VolumeInput, steps=(Step("prepare", prepare_restore), _FETCH, _FIT), on_end=take_back
)
VOLUME_FORK = Flow(
    name="volume_fork", input=VolumeInput, steps=(Step("prepare", prepare_fork), _FILL, _FIT), on_end=take_back
)


# Flow `volume_snapshot`: what a volume holds at one moment, as a file that outlives the volume. It queues at its
# volume, behind whatever changes that one's size or ends it. One that fails leaves no file, and a record that says
# so: whoever asked for it must be able to see that it is not there.


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that is taken; the run's resource is the volume."""

    snapshot: SnapshotId


async def begin(context: Context[Take]) -> Outcome:
    """Begins the snapshot: from here on it is the volume of now that counts."""
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
    """Copies the bytes of the volume as they are at one moment."""
    size = await _snapshot_copies(context).take(VolumeId(context.resource.id), context.input.snapshot)
    return Done(result=size)


async def seal(context: Context[Take]) -> Outcome:
    """Marks the snapshot as created with its size: from here on it counts."""
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


def _snapshot_copies(context: Context[Take]) -> Copies:
    deps: VolumeDeps = context.deps
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


# Flow `volume_backup`: a snapshot, sent to where backups go. The snapshot is taken for it, by a run of the volume; this
# run is one of the volume's backups, and the volume can be changed meanwhile. At its end the snapshot may go.


class SendBackup(msgspec.Struct, frozen=True, kw_only=True):
    """`backup` is ORG/APP/VOLUME/TIME, `name` the volume's then."""

    backup: str
    snapshot: SnapshotId
    name: str


async def await_snapshot(context: Context[SendBackup]) -> Outcome:
    """Waits until the snapshot is whole: its run waits for whatever else is done to the volume."""
    record = context.deps.store.get(SNAPSHOTS, context.input.snapshot)
    if record is None or record.status is SnapshotStatus.FAILED:
        return Abort(_why_not_taken(context))
    if record.status is not SnapshotStatus.CREATED:
        raise Unavailable(f"snapshot {context.input.snapshot} is being taken")
    return Done()


def _why_not_taken(context: Context[SendBackup]) -> HawkerError | str:
    """What ended the snapshot's run, where it says something of the volume itself."""
    volume = volume_resource(VolumeId(context.resource.id))
    for run in journal.newest(context.deps.store, volume):
        taken = run.flow == VOLUME_SNAPSHOT.name and msgspec.msgpack.decode(run.input, type=Take)
        if taken and taken.snapshot == context.input.snapshot and run.fault is not None:
            error = error_of(run.fault)
            return error if isinstance(error, Damaged) else f"snapshot {taken.snapshot} could not be taken: {error}"
    return f"snapshot {context.input.snapshot} could not be taken"


async def send_backup(context: Context[SendBackup]) -> Outcome:
    """Sends the snapshot to the backups. What is there already is not sent again, also after a crash."""
    record = context.deps.store.get(SNAPSHOTS, context.input.snapshot)
    if record is None:
        return Abort(f"snapshot {context.input.snapshot} is gone")
    return Done(result=await backups_of(context.deps).save(context.input.backup, record, context.input.name))


def release_snapshot(tx: Tx, ended: EndedRun[SendBackup]) -> None:
    record = tx.get(SNAPSHOTS, ended.input.snapshot)
    if record is not None:
        tx.put(SNAPSHOTS, record.id, msgspec.structs.replace(record, kept_until=min(record.kept_until, ended.now)))


def backups_of(deps: VolumeDeps) -> Backups:
    """The place to which backups are sent. Raises `NotServed` on a node whose setting was taken away."""
    if deps.backups is None:
        raise NotServed("this node sends backups nowhere: it has no setting backup_url")
    return deps.backups


VOLUME_BACKUP = Flow(
    name="volume_backup",
    input=SendBackup,
    steps=(
        Step("await_snapshot", await_snapshot, backoff=Backoff(attempts=1000, cap_s=30.0)),
        Step("send", send_backup, timeout_s=86_400, queue="backups", backoff=PATIENT, points=("packed", "sent")),
    ),
    on_end=release_snapshot,
)
