"""What scenes with copies of volumes are made of: snapshots, restored and forked volumes. The scenes themselves are in
`scenes`; that a file is whole, once and of its size is for the invariants to say.
"""

from contextlib import suppress
from pathlib import Path

from anyio.to_thread import run_sync

from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    CreateVolumeRequest,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.chaos.stage import Stage, named
from hawker.chaos.volume_scenes import off_with_volume, running_with_volume
from hawker.errors import Fault
from hawker.ids import MachineId, VolumeId

_SUPERBLOCK = 4096


async def with_snapshot(stage: Stage) -> MachineId:
    """A machine that runs with a volume, of which there is a snapshot."""
    machine_id = await running_with_volume(stage)
    await take_snapshot(stage, machine_id)

    async def is_whole() -> bool:
        return any(snapshot.status == "created" for snapshot in await _snapshots(stage))

    await stage.until(is_whole)
    return machine_id


async def off_with_damaged_volume(stage: Stage) -> MachineId:
    """Whatever is made from it cannot be mounted."""
    machine_id = await off_with_volume(stage)
    volume_id = await _source(stage)
    await run_sync(_damage, stage.wares.archive.parent, volume_id)
    return machine_id


def _damage(below: Path, volume_id: VolumeId) -> None:
    file = next(below.glob(f"**/volumes/{volume_id}/disk"))
    with file.open("r+b") as stream:
        stream.write(bytes(_SUPERBLOCK))


async def take_snapshot(stage: Stage, machine_id: MachineId | None) -> MachineId:
    """Unless there is one that did not fail."""
    assert machine_id is not None
    if all(snapshot.status == "failed" for snapshot in await _snapshots(stage)):
        await stage.customer.client.call(CREATE_SNAPSHOT, params=await _params(stage))
    return machine_id


async def restore_snapshot(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    [snapshot] = await _snapshots(stage)
    await _copy(stage, snapshot_id=snapshot.id)
    return machine_id


async def fork_volume(stage: Stage, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await _copy(stage, source_volume_id=await _source(stage))
    return machine_id


async def fork_in_vain(stage: Stage, machine_id: MachineId | None) -> MachineId:
    with suppress(Fault):
        await fork_volume(stage, machine_id)
    assert machine_id is not None
    return machine_id


async def _copy(stage: Stage, *, snapshot_id: str | None = None, source_volume_id: str | None = None) -> None:
    """Unless it is there, or being made."""
    params, name = AppParams(app_name=stage.customer.app), named(f"{stage.key} copy")
    listed = (await stage.customer.client.call(LIST_VOLUMES, params=params)).items
    if not any(volume.name == name for volume in listed):
        body = CreateVolumeRequest(
            name=name, snapshot_id=snapshot_id, source_volume_id=source_volume_id, auto_backup_enabled=False
        )
        await stage.customer.client.call(CREATE_VOLUME, params=params, body=body)


async def _snapshots(stage: Stage) -> tuple[VolumeSnapshot, ...]:
    return await stage.customer.client.call(LIST_SNAPSHOTS, params=await _params(stage))


async def _params(stage: Stage) -> VolumeParams:
    return VolumeParams(app_name=stage.customer.app, volume_id=await _source(stage))


async def _source(stage: Stage) -> VolumeId:
    return await stage.customer.volume(named(f"{stage.key} before"))
