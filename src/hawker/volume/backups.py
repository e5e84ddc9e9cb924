"""Backups of volumes as single transactions: a snapshot and the run that sends it, and a new volume that is filled from
a backup. What has arrived is known by the repository alone; the store keeps no list of it.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from hawker.backup.checks import BackupCheck
from hawker.backup.format import is_backup
from hawker.clock import Clock
from hawker.errors import NotFound, NotServed
from hawker.failpoint import reach
from hawker.fsm.contract import WhenBusy
from hawker.fsm.runner import Runner
from hawker.fsm.view import RunView
from hawker.ids import AppName, SnapshotId, VolumeId
from hawker.record.app import org_of
from hawker.record.volume import GB, VolumeRecord, backup_resource
from hawker.store.contract import Store, Tx
from hawker.volume.disks import Backups, check_room
from hawker.volume.flows import VOLUME_BACKUP, VOLUME_FETCH, SendBackup
from hawker.volume.operations import Volumes
from hawker.volume.restore import VolumeOrigin
from hawker.volume.snapshots import Snapshots


def backup_time(seconds: float, snapshot_id: SnapshotId) -> str:
    """The last part of a backup's name: in order of time, and never twice for a volume."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%SZ}-{snapshot_id[-4:]}"


MOST_RUNS = 1000


class VolumeBackups:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        backups: Backups | None,
        runner: Runner[Any],
        volumes: Volumes,
        snapshots: Snapshots,
    ) -> None:
        self._store = store
        self._clock = clock
        self._backups = backups
        self._runner = runner
        self._volumes = volumes
        self._snapshots = snapshots

    @property
    def kept(self) -> Backups:
        """The place to which backups are sent. Raises `NotServed` on a node that sends them nowhere."""
        if self._backups is None:
            raise NotServed("this node sends backups nowhere: start it with --backup-url and --backup-passphrase-file")
        return self._backups

    async def begin(self, app: AppName, volume_id: VolumeId) -> SnapshotId:
        """Begins a backup of a volume, which is promised once this returns. Raises as a snapshot does."""
        assert self.kept is not None
        self._volumes.get(app, volume_id)
        check_room(await self._snapshots.copies.room(volume_id), f"volume {volume_id}")
        reach("volume_backup.accept.before")
        snapshot_id = await self._store.write(lambda tx: self._accept(tx, app, volume_id))
        reach("volume_backup.accept.after")
        return snapshot_id

    def _accept(self, tx: Tx, app: AppName, volume_id: VolumeId) -> SnapshotId:
        snapshot = self._snapshots.accept(tx, app, volume_id)
        time = backup_time(self._clock.now(), snapshot.id)
        send = SendBackup(
            backup=f"{org_of(tx, app)}/{app}/{volume_id}/{time}",
            snapshot=snapshot.id,
            name=self._volumes.get(app, volume_id).name,
        )
        self._runner.accept(tx, VOLUME_BACKUP, backup_resource(volume_id), send, when_busy=WhenBusy.QUEUE)
        return snapshot.id

    def run(self, app: AppName, volume_id: VolumeId, snapshot_id: SnapshotId) -> RunView:
        """The run that sends it, as long as the node knows of it. Raises `NotFound`."""
        for run in self._runner.list(resource=backup_resource(volume_id), limit=MOST_RUNS):
            if run.input["snapshot"] == snapshot_id and run.input["backup"].split("/")[1] == app:
                return run
        raise NotFound(f"no backup of volume {volume_id} is made from snapshot {snapshot_id:.40}")

    async def list(self, app: AppName) -> list[tuple[str, BackupCheck]]:
        """VOLUME/TIME of each, of each volume the oldest first, with what is known of it since it was read."""
        prefix = f"{org_of(self._store, app)}/{app}/"
        found = await self.kept.list(prefix)
        checks = await self.kept.checks(prefix) if found else {}
        return [(backup.removeprefix(prefix), checks.get(backup, BackupCheck())) for backup in found]

    async def origin(self, app: AppName, name: str) -> VolumeOrigin:
        """The origin of a volume that is to be made from a backup. Only what was saved of this app of this organization
        is found: others' backups are under other names. Raises `NotFound`."""
        if not is_backup(name):
            raise NotFound(
                f"backup {name:.80} not found: its name is VOLUME/TIME, as `hawker volumes backups` lists it"
            )
        backup = f"{org_of(self._store, app)}/{app}/{name}"
        found = await self.kept.find(backup)
        return VolumeOrigin(
            what=f"backup {name}",
            size_gb=-(-found.size_bytes // GB),
            fstype=found.fstype,
            encrypted=found.encrypted,
            key=found.key,
            guest_written=found.guest_written,
            backup=backup,
        )

    async def restore(self, record: VolumeRecord, origin: VolumeOrigin) -> VolumeRecord:
        """Begin to make a volume from a backup, which is promised once this returns; `record` is as an empty one is
        made of the completed order."""
        filled = msgspec.structs.replace(
            record,
            source_backup=origin.backup,
            fstype=origin.fstype,
            encrypted=origin.encrypted,
            key=origin.key,
            guest_written=origin.guest_written,
        )
        return await self._volumes.create(filled, VOLUME_FETCH)
