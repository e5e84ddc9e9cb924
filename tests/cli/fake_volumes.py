"""The part of the fake node that has volumes: they are made at once unless a test says what they go through."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from hawker.api.contract.volume import (
    BackupState,
    CreateVolumeRequest,
    ExtendVolumeAnswer,
    KeptBackup,
    SnapshotBackup,
    SnapshotCreated,
    SnapshotOwner,
    Volume,
    VolumeBackup,
    VolumeSnapshot,
)
from hawker.api.route import Call, Page
from hawker.errors import NotFound, WrongState
from tests.cli.fake_doctor import FakeDoctor

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NEW = "vol_00000000000000ff"
TAKEN = "vs_00000000000000ff"
BACKUP = "vol_0000000000000001/20260102T030405Z-00ff"


def volume(volume_id: str = "vol_0000000000000001", **fields: Any) -> Volume:
    whole: dict[str, Any] = {
        "id": volume_id,
        "name": "data",
        "state": "created",
        "size_gb": 3,
        "region": "local",
        "zone": "0badcafe",
        "encrypted": False,
        "attached_machine_id": None,
        "attached_alloc_id": None,
        "created_at": AT,
        "fstype": "ext4",
        "snapshot_retention": 5,
        "auto_backup_enabled": True,
        "host_status": "ok",
        "type": "local",
        "bytes_used": 5 << 20,
        "bytes_total": 3 << 30,
    }
    return Volume(**{**whole, **fields})


def snapshot(snapshot_id: str = "vs_0000000000000001", **fields: Any) -> VolumeSnapshot:
    whole: dict[str, Any] = {
        "id": snapshot_id,
        "size": 7 << 20,
        "volume_size": 3 << 30,
        "digest": "sha256:00",
        "created_at": AT,
        "status": "created",
        "retention_days": 5,
    }
    return VolumeSnapshot(**{**whole, **fields})


class FakeVolumes(FakeDoctor):
    """`disks` has volumes by app; `stages` are the states that a new one, or a new snapshot, is seen in, one at each
    look, before it is created; a volume whose last stage is "gone" could not be made."""

    missing_regions: tuple[str, ...] = ()
    missing_nodes: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.disks: dict[str, dict[str, Volume]] = {}
        self.snapshots: tuple[VolumeSnapshot, ...] = (snapshot(),)
        self.stages: list[str] = []
        self.kept_backup = KeptBackup(backup=BACKUP, volume="vol_0000000000000001")

    def keep(self, app: str, *volumes: Volume) -> None:
        self.disks.setdefault(app, {}).update({each.id: each for each in volumes})

    def _disk(self, call: Call[Any, Any, Any]) -> Volume:
        found = self.disks.get(call.params.app_name, {}).get(call.params.volume_id)
        if found is None:
            raise NotFound("volume not found")
        return found

    def _put(self, call: Call[Any, Any, Any], **fields: Any) -> Volume:
        changed = msgspec.structs.replace(self._disk(call), **fields)
        self.keep(call.params.app_name, changed)
        return changed

    async def _list_volumes(self, call: Call[Any, Any, Any]) -> Page[Volume]:
        call.metadata.missing_regions, call.metadata.missing_nodes = self.missing_regions, self.missing_nodes
        return Page(tuple(self.disks.get(call.params.app_name, {}).values()))

    async def _get_volume(self, call: Call[Any, Any, Any]) -> Volume:
        state = self.stages.pop(0) if self.stages else "created"
        if state == "gone":
            raise NotFound("volume not found")
        return self._put(call, state=state)

    async def _create_volume(self, call: Call[Any, Any, CreateVolumeRequest]) -> Volume:
        body = call.body
        made = volume(
            NEW, name=body.name, size_gb=body.size_gb or 3, state=self.stages[0] if self.stages else "created"
        )
        self.keep(call.params.app_name, made)
        return made

    async def _update_volume(self, call: Call[Any, Any, Any]) -> Volume:
        kept, daily = call.body.snapshot_retention, call.body.auto_backup_enabled
        before = self._disk(call)
        return self._put(
            call,
            snapshot_retention=before.snapshot_retention if kept is None else kept,
            auto_backup_enabled=before.auto_backup_enabled if daily is None else daily,
        )

    async def _extend_volume(self, call: Call[Any, Any, Any]) -> ExtendVolumeAnswer:
        extended = self._put(call, size_gb=call.body.size_gb)
        return ExtendVolumeAnswer(volume=extended, needs_restart=extended.attached_machine_id is not None)

    async def _delete_volume(self, call: Call[Any, Any, Any]) -> Volume:
        if self._disk(call).attached_machine_id is not None:
            raise WrongState("volume is attached to a machine")
        return self._put(call, state="pending_destroy")

    async def _undelete_volume(self, call: Call[Any, Any, Any]) -> Volume:
        return self._put(call, state="created")

    async def _detach_volume(self, call: Call[Any, Any, Any]) -> Volume:
        return self._put(call, attached_machine_id=None)

    async def _move_volume(self, call: Call[Any, Any, Any]) -> Volume:
        return self._put(call)

    async def _find_snapshot(self, call: Call[Any, Any, Any]) -> SnapshotOwner:
        if call.params.snapshot_id != TAKEN:
            raise NotFound("snapshot not found")
        return SnapshotOwner(id=TAKEN, app="shop")

    async def _list_snapshots(self, call: Call[Any, Any, Any]) -> tuple[VolumeSnapshot, ...]:
        self._disk(call)
        if self.stages:
            return (snapshot(TAKEN, status=self.stages.pop(0)), *self.snapshots)
        return (snapshot(TAKEN), *self.snapshots)

    async def _create_snapshot(self, call: Call[Any, Any, Any]) -> SnapshotCreated:
        self._disk(call)
        return SnapshotCreated(Msg=SnapshotBackup(backup=snapshot(TAKEN, status="waiting", size=0)))

    async def _create_backup(self, call: Call[Any, Any, Any]) -> VolumeBackup:
        self._disk(call)
        return VolumeBackup(backup=BACKUP, snapshot=TAKEN, state=BackupState.WAITING)

    async def _get_backup(self, call: Call[Any, Any, Any]) -> VolumeBackup:
        state = BackupState(self.stages.pop(0) if self.stages else "created")
        made = VolumeBackup(backup=BACKUP, snapshot=call.params.snapshot, state=state)
        if state is BackupState.FAILED:
            return msgspec.structs.replace(made, error="the place is full")
        if state is BackupState.CREATED:
            return msgspec.structs.replace(made, stored_bytes=7 << 20, sent_bytes=1 << 20)
        return made

    async def _list_backups(self, call: Call[Any, Any, Any]) -> tuple[KeptBackup, ...]:
        return (self.kept_backup,)
