"""A client of volumes, as tests see it: calls as HTTP makes them, and the played host behind."""

from typing import Any

from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    DELETE_VOLUME,
    GET_VOLUME,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    UNDELETE_VOLUME,
    CreateVolumeRequest,
    ListVolumesQuery,
    Volume,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import SNAPSHOTS, VOLUMES, SnapshotRecord, SnapshotStatus, VolumeRecord
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import SimWorld


class Shelf:
    def __init__(self, world: SimWorld, worker: SimWorker) -> None:
        self.world = world
        self.worker = worker

    async def create(self, name: str = "data", *, app: str = APP, **order: Any) -> Volume:
        body = CreateVolumeRequest(name=name, **order)
        return await self.worker.api.call(CREATE_VOLUME, params=AppParams(app_name=app), body=body)

    async def written(self, **order: Any) -> VolumeId:
        """A volume that something was written to, and its id."""
        volume_id = VolumeId((await self.create(**order)).id)
        self.write(volume_id)
        return volume_id

    def write(self, volume_id: str) -> None:
        self.world.disks.files[VolumeId(volume_id)].content += 1

    def content(self, volume_id: str) -> int:
        return self.world.disks.files[VolumeId(volume_id)].content

    async def get(self, volume_id: str) -> Volume:
        return await self.worker.api.call(GET_VOLUME, params=of(volume_id))

    async def list(self) -> list[str]:
        page = await self.worker.api.call(LIST_VOLUMES, params=AppParams(app_name=APP), query=ListVolumesQuery())
        return [volume.id for volume in page.items]

    async def delete(self, volume_id: str) -> Volume:
        return await self.worker.api.call(DELETE_VOLUME, params=of(volume_id))

    async def undelete(self, volume_id: str) -> Volume:
        return await self.worker.api.call(UNDELETE_VOLUME, params=of(volume_id))

    async def snapshots(self, volume_id: str) -> tuple[VolumeSnapshot, ...]:
        return await self.worker.api.call(LIST_SNAPSHOTS, params=of(volume_id))

    async def snapshot(self, volume_id: str) -> SnapshotId:
        """Asked for, and promised."""
        answer = await self.worker.api.call(CREATE_SNAPSHOT, params=of(volume_id))
        return SnapshotId(answer.Msg.backup.id)

    async def taken(self, volume_id: str) -> SnapshotId:
        """A whole snapshot."""
        snapshot_id = await self.snapshot(volume_id)
        await eventually(self.world.clock, lambda: self.record(snapshot_id).status is SnapshotStatus.CREATED, 600)
        return snapshot_id

    def record(self, snapshot_id: str) -> SnapshotRecord:
        found = self.worker.store.get(SNAPSHOTS, snapshot_id)
        assert found is not None, f"there is no snapshot {snapshot_id}"
        return found

    def volume(self, volume_id: str) -> VolumeRecord:
        found = self.worker.store.get(VOLUMES, volume_id)
        assert found is not None, f"there is no volume {volume_id}"
        return found


def of(volume_id: str, app: str = APP) -> VolumeParams:
    return VolumeParams(app_name=app, volume_id=volume_id)
