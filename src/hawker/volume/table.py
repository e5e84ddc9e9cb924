"""The table of volumes: what they hold is in `USED` until their file is gone, and the index by app agrees with them."""

from collections.abc import Iterator
from typing import Any

import msgspec

from hawker.clock import Clock
from hawker.errors import NotFound, WrongState
from hawker.ids import AppName, VolumeId
from hawker.node import Resources
from hawker.record.move import COMING_SNAPSHOTS, check_not_gone, coming_snapshots
from hawker.record.node import hold
from hawker.record.volume import (
    GOING,
    GONE_VOLUMES,
    SNAPSHOTS,
    SNAPSHOTS_BY_VOLUME,
    VOLUMES,
    VOLUMES_BY_APP,
    VolumeKey,
    VolumeRecord,
    VolumeState,
)
from hawker.store.contract import Reader, Tx
from hawker.volume.retention import GRACE_S

_KEYS_AT_ONCE = 500


class VolumeTable:
    """Reads take any reader; changes take the transaction they belong to. `grace_s` is how long what was deleted can be
    undeleted."""

    def __init__(self, clock: Clock, grace_s: float = GRACE_S) -> None:
        self._clock = clock
        self._grace_s = grace_s

    def get(self, reader: Reader, volume_id: VolumeId) -> VolumeRecord:
        record = reader.get(VOLUMES, volume_id)
        if record is None:
            raise NotFound("volume not found")
        return record

    def find(self, reader: Reader, app: AppName, volume_id: str) -> VolumeRecord:
        """The volume if it belongs to `app` and its file is not being removed. Raises `Moved` once another node owns
        it."""
        record = reader.get(VOLUMES, volume_id)
        check_not_gone(reader, volume_id, app)
        if record is None or record.app != app or record.state is VolumeState.DESTROYED:
            raise NotFound("volume not found")
        return record

    def of_app(self, reader: Reader, app: AppName, after: str = "") -> Iterator[VolumeRecord]:
        """The app's volumes with an id beyond `after`, by id; read as they are asked for."""
        last: str | None = f"{app}/{after}"
        while keys := list(reader.scan(VOLUMES_BY_APP, f"{app}/", after=last, limit=_KEYS_AT_ONCE)):
            for _, key in keys:
                record = reader.get(VOLUMES, key.id)
                if record is not None:
                    yield record
            last = keys[-1][0]

    def count(self, reader: Reader, app: AppName) -> int:
        """The number of volumes that an app has, without those that are to be destroyed."""
        return sum(record.state not in GOING for record in self.of_app(reader, app))

    def insert(self, tx: Tx, record: VolumeRecord) -> None:
        tx.put(VOLUMES, record.id, record)
        tx.put(VOLUMES_BY_APP, f"{record.app}/{record.id}", VolumeKey(id=record.id))
        hold(tx, Resources(), record.holds)

    def change(self, tx: Tx, record: VolumeRecord, **fields: Any) -> VolumeRecord:
        changed = msgspec.structs.replace(record, **fields, updated_at=self._clock.now())
        tx.put(VOLUMES, record.id, changed)
        hold(tx, record.holds, changed.holds)
        return changed

    def let_go(self, tx: Tx, record: VolumeRecord) -> VolumeRecord:
        """Lets a volume go: it can be undeleted until `destroy_at`, and holds its room until then. Raises `WrongState`
        while a machine has it."""
        if record.machine is not None:
            raise WrongState(
                f"volume {record.id} is attached to machine {record.machine}: stop that machine and detach the volume,"
                " or destroy the machine"
            )
        destroy_at = self._clock.now() + self._grace_s
        return self.change(tx, record, state=VolumeState.PENDING_DESTROY, destroy_at=destroy_at)

    def accept_damage(self, tx: Tx, record: VolumeRecord) -> VolumeRecord:
        """Accepts a volume's damage: it may be used, with what is left of it."""
        if record.damage is None:
            return record
        accepted = msgspec.structs.replace(record.damage, accepted_at=self._clock.now())
        return self.change(tx, record, damage=accepted)

    def leave(self, tx: Tx, record: VolumeRecord) -> None:
        """Takes the volume from its app. It is on its way to another app, in the same transaction: no app has it."""
        tx.delete(VOLUMES, record.id)
        tx.delete(VOLUMES_BY_APP, f"{record.app}/{record.id}")

    def enter(self, tx: Tx, record: VolumeRecord, app: AppName) -> VolumeRecord:
        """The other app has it from now on, and its snapshots."""
        moved = msgspec.structs.replace(record, app=app, lent_by=None, updated_at=self._clock.now())
        tx.put(VOLUMES, moved.id, moved)
        tx.put(VOLUMES_BY_APP, f"{app}/{moved.id}", VolumeKey(id=moved.id))
        for _, key in list(tx.scan(SNAPSHOTS_BY_VOLUME, f"{moved.id}/")):
            snapshot = tx.get(SNAPSHOTS, key.id)
            if snapshot is not None:
                tx.put(SNAPSHOTS, snapshot.id, msgspec.structs.replace(snapshot, app=app))
        for coming in coming_snapshots(tx, moved.id):
            of_app = msgspec.structs.replace(coming.snapshot, app=app)
            tx.put(COMING_SNAPSHOTS, of_app.id, msgspec.structs.replace(coming, snapshot=of_app))
        return moved

    def depart(self, tx: Tx, record: VolumeRecord) -> None:
        """Takes a volume off this node, since another node has it."""
        self.leave(tx, record)
        hold(tx, record.holds, Resources())

    def remove(self, tx: Tx, record: VolumeRecord) -> None:
        """Marks a volume as gone with its file; the record stays readable for a while, and says that no file of it is
        to be kept."""
        tx.delete(VOLUMES, record.id)
        tx.delete(VOLUMES_BY_APP, f"{record.app}/{record.id}")
        hold(tx, record.holds, Resources())
        now = self._clock.now()
        gone = msgspec.structs.replace(record, state=VolumeState.DESTROYED, machine=None, updated_at=now)
        tx.put(GONE_VOLUMES, record.id, gone)
