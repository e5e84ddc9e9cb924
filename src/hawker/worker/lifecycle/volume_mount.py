"""The volume of a machine, as steps of the machine's flows: mounted on the host before a launch, given back once the
instance is gone.
"""

import msgspec

from hawker.errors import Damaged, WrongState
from hawker.failpoint import inside
from hawker.fsm.contract import Abort, Done, Outcome, StepContext
from hawker.ids import VolumeId
from hawker.record.machine import MachineRecord
from hawker.record.volume import IN_MAKING, MADE, VolumeRecord
from hawker.store.contract import Tx
from hawker.volume.attachment import attached_to, guest_written_refusal, volume_id_of
from hawker.volume.disks import disk_of
from hawker.volume.losses import check_usable
from hawker.worker.lifecycle.deps import FlowDeps

_LOOK_EVERY_S = 0.2


async def mount_volume(context: StepContext[FlowDeps, msgspec.Struct], record: MachineRecord) -> Outcome:
    """Mount the machine's volume; the path is the step's result. A volume that is still being made is waited for.
    Without a volume, nothing that a later step does stands in the way of coming here again."""
    deps, volume_id = context.deps, volume_id_of(record.config)
    if volume_id is None:
        return Done(late=True)
    assert deps.disks is not None, "a mount is refused where there are no volumes"
    while (volume := attached_to(deps.store, volume_id, record.id)) is not None and volume.state in IN_MAKING:
        await context.clock.sleep(_LOOK_EVERY_S)
    if volume is None or volume.state not in MADE:
        what = "is not attached to the machine" if volume is None else f"is {volume.state}"
        return Abort(WrongState(f"volume {volume_id} {what}"))
    try:
        check_usable(volume)
    except Damaged as error:
        return Abort(error)
    if volume.guest_written and not deps.driver.features.disks:
        return Abort(guest_written_refusal(volume_id))
    if deps.driver.features.disks and not volume.guest_written:
        await deps.store.write(lambda tx: _mark(tx, deps, volume_id))
    if volume.behind:  # also when it is mounted still, from before a restart
        await deps.disks.unmount(volume_id)
    path = await deps.disks.mount(disk_of(volume))
    inside("attached")
    grown = volume.behind and await deps.disks.grow(disk_of(volume))
    caught_up = grown or volume.wants_repair
    return Done(result=path, commit=(lambda tx: _caught_up(tx, deps, volume, grown=grown)) if caught_up else None)


def _mark(tx: Tx, deps: FlowDeps, volume_id: VolumeId) -> None:
    """One that was attached before there was a mark. It is on disk before a guest can write."""
    deps.volumes.change(tx, deps.volumes.get(tx, volume_id), guest_written=True)


def _caught_up(tx: Tx, deps: FlowDeps, mounted: VolumeRecord, *, grown: bool) -> None:
    """What could not grow while it was in use did so with the mount; what was lost of it is repaired."""
    volume = deps.volumes.get(tx, mounted.id)
    if grown and volume.made_gb == volume.size_gb:
        volume = deps.volumes.change(tx, volume, behind=False)
    if mounted.wants_repair and volume.damage is not None:
        repaired = msgspec.structs.replace(volume.damage, repaired_at=deps.clock.now())
        deps.volumes.change(tx, volume, damage=repaired)


async def unmount_volume(deps: FlowDeps, record: MachineRecord | None) -> None:
    """No error when there is none, or it is not mounted. Once another machine has it, it is none of ours."""
    volume_id = None if record is None else volume_id_of(record.config)
    if deps.disks is None or record is None or volume_id is None:
        return
    if attached_to(deps.store, volume_id, record.id) is not None:
        await deps.disks.unmount(volume_id)
