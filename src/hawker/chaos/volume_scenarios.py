"""What scenarios with volumes are made of: what is there before, and the calls. The scenarios themselves are in
`scenarios`.
"""

from contextlib import suppress
from pathlib import Path

from anyio.to_thread import run_sync

from hawker.api.contract.app import AppParams
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery
from hawker.api.contract.volume import (
    CREATE_BACKUP,
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    LIST_BACKUPS,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    CreateVolumeRequest,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.chaos.scenario_context import SAMPLE, ScenarioContext, named
from hawker.config import MachineConfig
from hawker.errors import Fault
from hawker.ids import MachineId, VolumeId
from hawker.machine import State
from hawker.volume.flows import VOLUME_BACKUP

LARGER_GB = 2


async def with_free_volume(context: ScenarioContext) -> None:
    """And no machine; the sample image is there."""
    await context.customer.pull(SAMPLE)
    await context.customer.volume(named(context.key))


async def running_with_volume(context: ScenarioContext) -> MachineId:
    return await _with_volume(context, context.samples.sample(), State.STARTED)


async def running_beside_volume(context: ScenarioContext) -> MachineId:
    """A machine, and a volume that it does not have."""
    before = f"{context.key} before"
    await context.customer.pull(SAMPLE)
    await context.customer.volume(named(before))
    return await context.created(context.samples.sample(), before, State.STARTED)


async def off_with_volume(context: ScenarioContext) -> MachineId:
    return await _with_volume(context, context.samples.sample(), State.STOPPED)


async def broken_with_volume(context: ScenarioContext) -> MachineId:
    return await _with_volume(context, context.samples.broken(), State.STOPPED)


async def _with_volume(context: ScenarioContext, config: MachineConfig, state: State) -> MachineId:
    before = f"{context.key} before"
    await context.customer.volume(named(before))
    return await context.created(context.samples.with_volume(config, before), before, state)


async def make_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Beside a machine that has nothing to do with it."""
    assert machine_id is not None
    await context.customer.volume(named(context.key))
    return machine_id


async def destroy_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Deleted, and gone as soon as the node looks, since this one keeps nothing that was deleted."""
    assert machine_id is not None
    name = named(f"{context.key} before")
    await context.customer.delete_volumes(name)

    async def is_gone() -> bool:
        return not await context.customer.volumes(name)

    await context.until(is_gone)
    return machine_id


async def create_with_volume(context: ScenarioContext, _: MachineId | None) -> MachineId:
    """Both are ordered, unless the volume is there; it is whole when its order is answered."""
    await context.customer.volume(named(context.key))
    return await context.order(context.samples.with_volume(context.samples.sample(), context.key), context.key)


async def create_broken_with_volume(context: ScenarioContext, _: MachineId | None) -> MachineId:
    return await context.order(context.samples.with_volume(context.samples.broken(), context.key), context.key)


async def extend_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await context.customer.extend(await context.customer.volume(named(f"{context.key} before")), LARGER_GB)
    return machine_id


_SUPERBLOCK = 4096


async def with_snapshot(context: ScenarioContext) -> MachineId:
    """A machine that runs with a volume, of which there is a snapshot."""
    machine_id = await running_with_volume(context)
    await take_snapshot(context, machine_id)

    async def is_whole() -> bool:
        return any(snapshot.status == "created" for snapshot in await _snapshots(context))

    await context.until(is_whole)
    return machine_id


async def with_backup(context: ScenarioContext) -> MachineId:
    """A machine that runs with a volume, of which there is a backup."""
    return await back_up(context, await running_with_volume(context))


async def off_with_damaged_volume(context: ScenarioContext) -> MachineId:
    """Whatever is made from it cannot be mounted."""
    machine_id = await off_with_volume(context)
    volume_id = await _source(context)
    await run_sync(_damage, context.samples.archive.parent, volume_id)
    return machine_id


def _damage(below: Path, volume_id: VolumeId) -> None:
    file = next(below.glob(f"**/volumes/{volume_id}/disk"))
    with file.open("r+b") as stream:
        stream.write(bytes(_SUPERBLOCK))


async def take_snapshot(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Unless there is one that did not fail."""
    assert machine_id is not None
    if all(snapshot.status == "failed" for snapshot in await _snapshots(context)):
        await context.customer.client.call(CREATE_SNAPSHOT, params=await _params(context))
    return machine_id


async def back_up(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    """Unless one was begun; and it arrives, however often the daemon dies."""
    assert machine_id is not None
    params, app = await _params(context), AppParams(app_name=context.customer.app)
    begun = (await context.customer.client.call(LIST_RUNS, query=ListRunsQuery(flow=VOLUME_BACKUP.name))).runs
    if not any(run.resource_id == params.volume_id for run in begun):
        await context.customer.client.call(CREATE_BACKUP, params=params)

    async def has_arrived() -> bool:
        kept = await context.customer.client.call(LIST_BACKUPS, params=app)
        return any(backup.volume == params.volume_id for backup in kept)

    await context.until(has_arrived)
    return machine_id


async def restore_snapshot(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    [snapshot] = await _snapshots(context)
    await _copy(context, snapshot_id=snapshot.id)
    return machine_id


async def restore_backup(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    source, app = await _source(context), AppParams(app_name=context.customer.app)
    kept = await context.customer.client.call(LIST_BACKUPS, params=app)
    await _copy(context, backup=next(each.backup for each in kept if each.volume == source))
    return machine_id


async def fork_volume(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    assert machine_id is not None
    await _copy(context, source_volume_id=await _source(context))
    return machine_id


async def fork_in_vain(context: ScenarioContext, machine_id: MachineId | None) -> MachineId:
    with suppress(Fault):
        await fork_volume(context, machine_id)
    assert machine_id is not None
    return machine_id


async def _copy(
    context: ScenarioContext,
    *,
    snapshot_id: str | None = None,
    source_volume_id: str | None = None,
    backup: str | None = None,
) -> None:
    """Unless it is there, or being made."""
    params, name = AppParams(app_name=context.customer.app), named(f"{context.key} copy")
    listed = (await context.customer.client.call(LIST_VOLUMES, params=params)).items
    if not any(volume.name == name for volume in listed):
        body = CreateVolumeRequest(
            name=name,
            snapshot_id=snapshot_id,
            source_volume_id=source_volume_id,
            backup=backup,
            auto_backup_enabled=False,
        )
        await context.customer.client.call(CREATE_VOLUME, params=params, body=body)


async def _snapshots(context: ScenarioContext) -> tuple[VolumeSnapshot, ...]:
    return await context.customer.client.call(LIST_SNAPSHOTS, params=await _params(context))


async def _params(context: ScenarioContext) -> VolumeParams:
    return VolumeParams(app_name=context.customer.app, volume_id=await _source(context))


async def _source(context: ScenarioContext) -> VolumeId:
    return await context.customer.volume(named(f"{context.key} before"))
