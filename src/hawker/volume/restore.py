"""New volumes from what there is: from a snapshot, or from another volume of the same organization. The order is
checked against its origin, then as every new volume, in the transaction that accepts the flow which fills it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hawker.api.contract.volume import CreateVolumeRequest
from hawker.errors import NotFound, Unprocessable, WrongState
from hawker.failpoint import reach
from hawker.fsm.contract import Flow, WhenBusy
from hawker.fsm.runner import Runner
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import (
    MADE,
    SNAPSHOTS,
    VOLUMES,
    Fstype,
    SealedKey,
    SnapshotRecord,
    SnapshotStatus,
    VolumeRecord,
    volume_resource,
)
from hawker.runtime.driver import Driver
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.volume.disks import check_room
from hawker.volume.flows import VOLUME_FORK, VOLUME_RESTORE, VolumeInput
from hawker.volume.losses import check_usable
from hawker.volume.operations import Volumes
from hawker.volume.snapshots import Snapshots, refuse_held


class VolumeOrigin(ValueObject, frozen=True, kw_only=True):
    """The origin of a new volume. `what` names it, `size_gb` is the least that it needs."""

    what: str
    size_gb: int
    fstype: Fstype
    encrypted: bool
    """The new volume has to be, too."""
    key: SealedKey | None
    guest_written: bool
    """A microVM mounted the origin as a disk: the new volume is for microVMs, too."""
    snapshot: SnapshotId | None = None
    volume: VolumeId | None = None
    backup: str | None = None
    """ORG/APP/VOLUME/TIME of a backup; None where it is made from a snapshot or a volume."""


def origin_of(order: CreateVolumeRequest, reader: Reader) -> tuple[str, VolumeOrigin] | None:
    """The app that it belongs to, and the origin; None for an order of an empty volume. Raises `NotFound`,
    `WrongState` when nothing can be made from it now, `Unprocessable`."""
    if order.snapshot_id and order.source_volume_id:
        raise Unprocessable("snapshot_id and source_volume_id: a volume is made from one of them")
    if order.snapshot_id:
        snapshot = reader.get(SNAPSHOTS, order.snapshot_id)
        if snapshot is None:
            raise NotFound(f"snapshot {order.snapshot_id:.40} not found")
        return snapshot.app, _of_snapshot(snapshot)
    if order.source_volume_id:
        volume = reader.get(VOLUMES, order.source_volume_id)
        if volume is None:
            raise NotFound(f"volume {order.source_volume_id:.40} not found")
        return volume.app, _of_volume(volume)
    return None


def _of_snapshot(snapshot: SnapshotRecord) -> VolumeOrigin:
    if snapshot.status is not SnapshotStatus.CREATED:
        raise WrongState(f"snapshot {snapshot.id} is {snapshot.status}, and cannot be restored")
    return VolumeOrigin(
        what=f"snapshot {snapshot.id}",
        size_gb=snapshot.volume_gb,
        fstype=snapshot.fstype,
        encrypted=snapshot.encrypted,
        key=snapshot.key,
        guest_written=snapshot.guest_written,
        snapshot=snapshot.id,
    )


def _of_volume(volume: VolumeRecord) -> VolumeOrigin:
    if volume.state not in MADE:
        raise WrongState(f"volume {volume.id} is {volume.state}, and cannot be forked")
    check_usable(volume)
    return VolumeOrigin(
        what=f"volume {volume.id}",
        size_gb=volume.size_gb,
        fstype=volume.fstype,
        encrypted=volume.encrypted,
        key=volume.key,
        guest_written=volume.guest_written,
        volume=volume.id,
    )


def completed(order: CreateVolumeRequest, origin: VolumeOrigin) -> CreateVolumeRequest:
    """The order with what it leaves to its origin. Raises `Unprocessable` naming the field that contradicts it."""
    if order.size_gb is not None and order.size_gb < origin.size_gb:
        raise Unprocessable(f"size_gb: {origin.what} needs at least {origin.size_gb} GB, not {order.size_gb}")
    if order.fstype is not None and order.fstype != origin.fstype:
        raise Unprocessable(f"fstype: {origin.what} has {origin.fstype}: leave it out")
    if order.encrypted is not None and order.encrypted != origin.encrypted:
        raise Unprocessable(
            f"encrypted: {origin.what} is {'' if origin.encrypted else 'not '}encrypted, and so is what is made from "
            f"it: leave it out, or say {str(origin.encrypted).lower()}"
        )
    return msgspec.structs.replace(order, size_gb=order.size_gb or origin.size_gb, fstype=origin.fstype.value)


class VolumeClones:
    def __init__(
        self, store: Store, driver: Driver, runner: Runner[Any], volumes: Volumes, snapshots: Snapshots
    ) -> None:
        self._store = store
        self._driver = driver
        self._runner = runner
        self._volumes = volumes
        self._snapshots = snapshots

    async def create(
        self,
        record: VolumeRecord,
        order: CreateVolumeRequest,
        origin: VolumeOrigin,
        note: Callable[[Tx, VolumeRecord], None] = lambda tx, made: None,
    ) -> VolumeRecord:
        """Begins to make a volume from an origin, which is promised once this returns; `note` is done in the same
        transaction, once the run is accepted. `record` is as an empty one is made of the completed order."""
        copied = origin.snapshot or origin.volume
        assert copied is not None, "an origin is a snapshot or a volume"
        check_room(await self._snapshots.copies.room(copied), origin.what)
        flow: Flow[Any] = VOLUME_RESTORE if origin.snapshot else VOLUME_FORK
        reach(f"{flow.name}.accept.before")

        def accept(tx: Tx) -> VolumeRecord:
            accepted = self._accept(tx, record, order, origin, flow)
            note(tx, accepted)
            return accepted

        made = await self._store.write(accept)
        reach(f"{flow.name}.accept.after")
        return made

    def _accept(
        self, tx: Tx, record: VolumeRecord, order: CreateVolumeRequest, origin: VolumeOrigin, flow: Flow[Any]
    ) -> VolumeRecord:
        """The origin is asked once more: a snapshot may have come to its end meanwhile, a volume have grown."""
        now = origin_of(order, tx)
        assert now is not None, "the order has not changed"
        completed(order, now[1])
        written = now[1].guest_written
        if origin.volume is not None:
            refuse_held(tx, self._driver.features, origin.volume)
        filled = msgspec.structs.replace(
            record,
            source_snapshot=origin.snapshot,
            source_volume=origin.volume,
            fstype=origin.fstype,
            encrypted=origin.encrypted,
            key=origin.key,
            guest_written=written,
        )
        self._volumes.admit(tx, filled)
        resource = volume_resource(filled.id)
        self._runner.accept(tx, flow, resource, VolumeInput(), when_busy=WhenBusy.QUEUE)
        return filled
