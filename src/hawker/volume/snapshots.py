"""Snapshots of volumes as single transactions: check, write the record, accept the run that copies. And their end: one
that is too old loses its record first, and its file once nothing names it any more.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from hawker.clock import Clock
from hawker.errors import NotFound, NotServed, Unprocessable, WrongState
from hawker.failpoint import reach
from hawker.fsm import journal
from hawker.fsm.contract import WhenBusy
from hawker.fsm.runner import Runner
from hawker.ids import AppName, SnapshotId, VolumeId, new_snapshot_id
from hawker.log import bind
from hawker.machine import State
from hawker.quota.quotas import Quotas
from hawker.record.machine import MACHINES
from hawker.record.move import COMING_SNAPSHOTS, check_here
from hawker.record.org import Amount
from hawker.record.volume import (
    GONE_SNAPSHOTS,
    IN_MAKING,
    IN_TAKING,
    MADE,
    SNAPSHOTS,
    SNAPSHOTS_BY_VOLUME,
    VOLUMES,
    SnapshotKey,
    SnapshotRecord,
    SnapshotStatus,
    VolumeRecord,
    backup_resource,
    volume_resource,
)
from hawker.runtime.driver import Driver, Features
from hawker.store.contract import Durability, Reader, Store, Tx
from hawker.volume.disks import Copies, check_room
from hawker.volume.flows import VOLUME_SNAPSHOT, Take
from hawker.volume.losses import check_usable
from hawker.volume.retention import kept_until

_HELD = frozenset({State.SUSPENDING, State.SUSPENDED})


def refuse_held(reader: Reader, features: Features, volume_id: VolumeId) -> None:
    """Checks that no suspended machine of a guest kernel has the volume. Raises `WrongState`."""
    volume = reader.get(VOLUMES, volume_id)
    machine = None if volume is None or volume.machine is None else reader.get(MACHINES, volume.machine)
    if features.disks and machine is not None and machine.state in _HELD:
        raise WrongState(
            f"volume {volume_id} cannot be copied while machine {machine.id}, which has it, is suspended: start or "
            "stop that first"
        )


# Volumes whose machine is suspended with its memory in a file: part of what was written is there and not yet on the
# volume, so no copy of it is whole.

MAX_SNAPSHOTS = 128

_log = bind("hawker.snapshots")


class Snapshots:
    def __init__(
        self,
        store: Store,
        driver: Driver,
        clock: Clock,
        copies: Copies | None,
        runner: Runner[Any],
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._driver = driver
        self._clock = clock
        self._copies = copies
        self._runner = runner
        self._quotas = quotas

    def of_volume(self, reader: Reader, volume_id: VolumeId) -> list[SnapshotRecord]:
        """The snapshots of a volume, newest first."""
        keys = [key.id for _, key in reader.scan(SNAPSHOTS_BY_VOLUME, f"{volume_id}/")]
        records = [record for key in keys if (record := reader.get(SNAPSHOTS, key)) is not None]
        return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True)

    def get(self, reader: Reader, snapshot_id: str) -> SnapshotRecord:
        record = reader.get(SNAPSHOTS, snapshot_id)
        if record is None:
            raise NotFound(f"snapshot {snapshot_id:.40} not found")
        return record

    async def take(self, app: AppName, volume_id: VolumeId, *, automatic: bool = False) -> SnapshotRecord:
        """Begins a snapshot of a volume, which is promised once this returns. Raises `NotFound`, `WrongState` while
        another is taken, `NoRoom`."""
        self._owned(self._store, app, volume_id)
        check_room(await self.copies.room(volume_id), f"volume {volume_id}")
        reach("volume_snapshot.accept.before")
        record = await self._store.write(lambda tx: self.accept(tx, app, volume_id, automatic=automatic))
        reach("volume_snapshot.accept.after")
        return record

    def accept(self, tx: Tx, app: AppName, volume_id: VolumeId, *, automatic: bool = False) -> SnapshotRecord:
        """The record, and the run that takes it. Raises as `take` does, but for the room on the host."""
        volume, there = self._owned(tx, app, volume_id), self.of_volume(tx, volume_id)
        check_here(tx, volume.id)
        if volume.state not in MADE:
            raise WrongState(f"cannot snapshot volume {volume_id} in state '{volume.state}'")
        check_usable(volume)
        refuse_held(tx, self._driver.features, volume_id)
        for each in there:
            if each.status in IN_TAKING:
                raise WrongState(f"snapshot is already scheduled at {_rfc3339(each.created_at)}")
        if len(there) >= MAX_SNAPSHOTS:
            raise Unprocessable(
                f"volume {volume_id} has {len(there)} snapshots, the most there can be: lower its snapshot_retention"
            )
        self._quotas.check(tx, app, Amount(snapshots=1))
        record = self._made(volume, automatic)
        tx.put(SNAPSHOTS, record.id, record)
        tx.put(SNAPSHOTS_BY_VOLUME, f"{volume_id}/{record.id}", SnapshotKey(id=record.id))
        if automatic:
            tx.put(VOLUMES, volume_id, msgspec.structs.replace(volume, backed_up_at=record.created_at))
        take = Take(snapshot=record.id)
        self._runner.accept(tx, VOLUME_SNAPSHOT, volume_resource(volume_id), take, when_busy=WhenBusy.QUEUE)
        return record

    def _made(self, volume: VolumeRecord, automatic: bool) -> SnapshotRecord:
        now = self._clock.now()
        return SnapshotRecord(
            id=new_snapshot_id(self._clock),
            volume=volume.id,
            app=volume.app,
            status=SnapshotStatus.WAITING,
            volume_gb=volume.made_gb,
            fstype=volume.fstype,
            encrypted=volume.encrypted,
            automatic=automatic,
            key=volume.key,
            guest_written=volume.guest_written,
            retention_days=volume.snapshot_retention,
            kept_until=kept_until(now, volume.snapshot_retention),
            created_at=now,
        )

    async def expire(self) -> list[SnapshotId]:
        """Forget those that are too old, and remove their files; also what an earlier daemon left to remove."""
        now, store = self._clock.now(), self._store
        for snapshot_id in [key for key, record in store.scan(SNAPSHOTS) if record.kept_until <= now]:
            await store.write(partial(self._forget, snapshot_id=SnapshotId(snapshot_id), now=now))
        removed = []
        for _, record in list(store.scan(GONE_SNAPSHOTS)):
            await self.copies.drop(record.id)
            await store.write(partial(_removed, snapshot_id=record.id), Durability.ORDERED)
            _log.info("snapshot removed", extra={"snapshot": record.id, "volume": record.volume})
            removed.append(record.id)
        return removed

    def _forget(self, tx: Tx, snapshot_id: SnapshotId, now: float) -> None:
        """Unless it is being taken, or a volume is being filled from it."""
        record = tx.get(SNAPSHOTS, snapshot_id)
        if record is None or record.kept_until > now or record.status in IN_TAKING or _is_read(tx, record):
            return
        let_go(tx, record)

    def shift(self, tx: Tx, seconds: float) -> None:
        """The wall clock was set: what is kept for days is kept as long as it would have been."""
        for key, record in list(tx.scan(SNAPSHOTS)):
            tx.put(SNAPSHOTS, key, msgspec.structs.replace(record, kept_until=record.kept_until + seconds))
        for key, coming in list(tx.scan(COMING_SNAPSHOTS)):
            later = msgspec.structs.replace(coming.snapshot, kept_until=coming.snapshot.kept_until + seconds)
            tx.put(COMING_SNAPSHOTS, key, msgspec.structs.replace(coming, snapshot=later))

    @property
    def copies(self) -> Copies:
        """The node's copies of volumes. Raises `NotServed` on a node without volumes."""
        if self._copies is None:
            raise NotServed("this node has no volumes: its driver runs machines in the host's own file system")
        return self._copies

    def _owned(self, reader: Reader, app: AppName, volume_id: VolumeId) -> VolumeRecord:
        volume = reader.get(VOLUMES, volume_id)
        if volume is None or volume.app != app:
            raise NotFound("volume not found")
        return volume


def let_go(tx: Tx, record: SnapshotRecord) -> None:
    """Lets a snapshot go: its file is to be removed. A snapshot that is read is kept for nothing but that, and goes
    after it."""
    if _is_read(tx, record):
        tx.put(SNAPSHOTS, record.id, msgspec.structs.replace(record, kept_until=0.0))
        return
    tx.delete(SNAPSHOTS, record.id)
    tx.delete(SNAPSHOTS_BY_VOLUME, f"{record.volume}/{record.id}")
    tx.put(GONE_SNAPSHOTS, record.id, record)


def _removed(tx: Tx, snapshot_id: SnapshotId) -> None:
    tx.delete(GONE_SNAPSHOTS, snapshot_id)


def _is_read(reader: Reader, record: SnapshotRecord) -> bool:
    if journal.active(reader, backup_resource(record.volume)) is not None:
        return True  # it may be on its way to where backups go
    volumes: Iterator[VolumeRecord] = (volume for _, volume in reader.scan(VOLUMES))
    return any(volume.source_snapshot == record.id and volume.state in IN_MAKING for volume in volumes)


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
