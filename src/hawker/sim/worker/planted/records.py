"""Tables of machines that break what a transaction keeps together."""

from typing import Any

import msgspec

from hawker.clock import Clock
from hawker.ids import AppName, MachineId, OrderId
from hawker.node import Resources
from hawker.store.contract import Reader, Tx
from hawker.worker.changes import Changes
from hawker.worker.records import EVENTS, EventRecord, MachineRecord
from hawker.worker.table import Happened, MachineTable
from hawker.worker.volumes.attachment import volume_id_of
from hawker.worker.volumes.records import VOLUMES


class CountsTwice(MachineTable):
    """Takes the room of a new machine once for the order and once for the machine."""

    def insert(self, tx: Tx, record: MachineRecord) -> None:
        super().insert(tx, record)
        self._hold(tx, Resources(), record.holds)


class KeepsRoom(MachineTable):
    """Does not give back what a destroyed machine held."""

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        self._hold(tx, Resources(), record.holds)
        super().remove(tx, record, event)


class KeepsVolumes(MachineTable):
    """Does not give back the volume of a machine that is gone."""

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        volume_id = volume_id_of(record.config)
        volume = None if volume_id is None else tx.get(VOLUMES, volume_id)
        super().remove(tx, record, event)
        if volume is not None:
            tx.put(VOLUMES, volume.id, volume)


class ForgetsOrders(MachineTable):
    """Keeps in memory which orders were filled."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        super().__init__(clock, changes)
        self._filled: set[OrderId] = set()

    def insert(self, tx: Tx, record: MachineRecord) -> None:
        super().insert(tx, record)
        self._filled |= {record.order} if record.order is not None else set()

    def made_for(self, reader: Reader, app: AppName, order: OrderId | None) -> MachineRecord | None:
        return super().made_for(reader, app, order) if order in self._filled else None


class WritesEventsLater(MachineTable):
    """Writes an event with the next change of anything, not with its own."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        super().__init__(clock, changes)
        self._late: list[tuple[str, EventRecord]] = []

    def _append(self, tx: Tx, record: MachineRecord, happened: Happened) -> dict[str, Any]:
        fields = super()._append(tx, record, happened)
        key = f"{record.id}/{fields['last_event']}"
        event = tx.get(EVENTS, key)
        assert event is not None
        tx.delete(EVENTS, key)
        for late_key, late in self._late:
            tx.put(EVENTS, late_key, late)
        self._late = [(key, event)]
        return fields


class RemembersTooSoon(MachineTable):
    """Keeps records in memory, as they are before the transaction is committed."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        super().__init__(clock, changes)
        self._known: dict[MachineId, MachineRecord] = {}

    def lookup(self, reader: Reader, machine_id: MachineId) -> MachineRecord | None:
        return self._known.get(machine_id) or super().lookup(reader, machine_id)

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        self._known[record.id] = super().change(tx, record, event, **fields)
        return self._known[record.id]

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        super().remove(tx, record, event)
        self._known.pop(record.id, None)


class DropsLeases(MachineTable):
    """A machine that changes its state loses its lease."""

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        moved = fields.get("state", record.state) != record.state
        return super().change(tx, record, event, **(fields | {"lease": None} if moved else fields))


class LosesMetadata(MachineTable):
    """A machine that is started runs with the config of its version, without what was set since."""

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        if event is not None and event.status == "started":
            fields |= {"config": msgspec.structs.replace(record.config, metadata=None)}
        return super().change(tx, record, event, **fields)
