"""Answers about snapshots of volumes."""

from hawker.api.contract.body import instant
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    LIST_SNAPSHOTS,
    SnapshotBackup,
    SnapshotCreated,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.errors import NotFound
from hawker.ids import AppName, VolumeId
from hawker.record.volume import GB, GONE_VOLUMES, VOLUMES, SnapshotRecord
from hawker.store.contract import Store
from hawker.volume.snapshots import Snapshots


class SnapshotHandlers:
    def __init__(self, store: Store, snapshots: Snapshots) -> None:
        self._store = store
        self._snapshots = snapshots

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_SNAPSHOTS, self.list)
        handlers.on(CREATE_SNAPSHOT, self.create)

    async def create(self, call: Call[VolumeParams, NoQuery, None]) -> SnapshotCreated:
        app, volume_id = AppName(call.params.app_name), VolumeId(call.params.volume_id)
        return SnapshotCreated(Msg=SnapshotBackup(backup=_shown(await self._snapshots.take(app, volume_id))))

    async def list(self, call: Call[VolumeParams, NoQuery, None]) -> tuple[VolumeSnapshot, ...]:
        """Also those of a volume that is gone, as long as they are kept."""
        volume_id = VolumeId(call.params.volume_id)
        with self._store.snapshot() as reader:
            volume = reader.get(VOLUMES, volume_id) or reader.get(GONE_VOLUMES, volume_id)
            if volume is None or volume.app != call.params.app_name:
                raise NotFound("volume not found")
            return tuple(map(_shown, self._snapshots.of_volume(reader, volume_id)))


def _shown(record: SnapshotRecord) -> VolumeSnapshot:
    return VolumeSnapshot(
        id=record.id,
        size=record.size,
        volume_size=record.volume_gb * GB,
        digest="",
        created_at=instant(record.created_at),
        status=record.status.value,
        retention_days=record.retention_days,
    )
