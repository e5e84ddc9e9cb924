"""The table of machines: every read, change and event of a machine record goes through here.

Invariants: `USED` has what all records hold; the indexes agree with the records; events of a machine are in
order and bounded. All are kept by changing them in the transaction that changes the record.
"""

import math
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec
from anyio.lowlevel import checkpoint

from hawker.clock import Clock
from hawker.errors import AlreadyExists, NotFound
from hawker.ids import AppName, EventId, MachineId, OrderId, Version, VolumeId, next_ulid
from hawker.machine import State
from hawker.node import Resources
from hawker.record.app import PINNED
from hawker.record.machine import (
    ARCHIVED,
    BY_APP,
    BY_FIRST_ID,
    BY_IPV4,
    BY_NAME,
    BY_ORDER,
    DESTROYED,
    EVENTS,
    MACHINES,
    VERSIONS,
    ArchiveRecord,
    Detail,
    EventRecord,
    MachineKey,
    MachineRecord,
    VersionRecord,
    id_key,
)
from hawker.record.move import OPEN_MOVE_OF, check_not_gone
from hawker.record.node import hold, used
from hawker.record.volume import VOLUMES, VolumeRecord
from hawker.store.contract import Bucket, Reader, Tx
from hawker.value_object import ValueObject
from hawker.volume.attachment import detach
from hawker.worker.changes import Changes

EVENTS_KEPT = 256
VERSIONS_KEPT, VERSIONS_KEPT_BYTES = 64, 4 << 20  # of a machine
_KEYS_AT_ONCE = 500


_RECORDS_AT_ONCE = 16  # each up to a MiB


class Happened(ValueObject, frozen=True):
    """An event to append: what the change means to a reader of the machine's history."""

    type: str
    """A word of Fly's: `launch`, `start`, `exit` and so on."""
    status: str
    """The machine's state after it, or how far it got."""
    source: str = "flyd"
    """The source of the event: `flyd` for the node itself, `user` for a caller, `edge` for traffic or the lack of
    it."""
    detail: Detail | None = None


def volume_event(status: str, what: str) -> Happened:
    """The event that the machine's volume was attached, detached, lent, returned or copied; `what` names volumes and
    machines."""
    return Happened("volume", status, "user", Detail(error=what))


class MachineTable:
    """Reads take any reader; changes take the transaction they belong to."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        self._clock = clock
        self.changes = changes

    def get(self, reader: Reader, machine_id: MachineId) -> MachineRecord:
        record = reader.get(MACHINES, machine_id)
        if record is None:
            raise NotFound("machine not found")
        return record

    def find(self, reader: Reader, app: AppName, machine_id: str) -> MachineRecord:
        """The machine if it belongs to `app`, also when it was destroyed a short while ago. Raises `Moved` once another
        node owns it."""
        key = MachineId(machine_id)
        record = self.lookup(reader, key)
        check_not_gone(reader, key, app)
        if record is None or record.app != app:
            raise NotFound("machine not found")
        return record

    def lookup(self, reader: Reader, machine_id: MachineId) -> MachineRecord | None:
        return reader.get(MACHINES, machine_id) or reader.get(DESTROYED, machine_id)

    def made_for(self, reader: Reader, app: AppName, order: OrderId | None) -> MachineRecord | None:
        """The machine that this order of the app became, if it did. Raises `Moved` once another node owns it."""
        key = None if order is None else reader.get(BY_ORDER, order_key(app, order))
        if key is None:
            return None
        check_not_gone(reader, key.id, app)
        return self.lookup(reader, key.id)

    def of_app(self, reader: Reader, app: AppName, after: str = "") -> Iterator[MachineRecord]:
        """The app's machines with an id beyond `after`, in the order of their ids; read as they are asked for, so that
        a page of a large app costs no more than the page."""
        last: str | None = f"{app}/{after}"
        while keys := list(reader.scan(BY_APP, f"{app}/", after=last, limit=_KEYS_AT_ONCE)):
            for _, key in keys:
                record = reader.get(MACHINES, key.id)
                if record is not None:  # destroyed meanwhile, where the reader is no snapshot
                    yield record
            last = keys[-1][0]

    def listed(self, reader: Reader, app: AppName, machine_id: MachineId) -> MachineRecord | None:
        """The machine if it belongs to `app`, also when it is gone and not yet forgotten. What is gone is read whole
        only where it does."""
        record = reader.get(MACHINES, machine_id)
        if record is None:
            owner = reader.get(_OWNERS, machine_id)
            record = reader.get(DESTROYED, machine_id) if owner is not None and owner.app == app else None
        return record if record is not None and record.app == app else None

    def used(self, reader: Reader) -> Resources:
        return used(reader)

    def insert(self, tx: Tx, record: MachineRecord) -> None:
        key = MachineKey(id=record.id)
        tx.put(MACHINES, record.id, record)
        tx.put(BY_APP, f"{record.app}/{record.id}", key)
        tx.put(BY_NAME, f"{record.app}/{record.name}", key)
        if record.order is not None:
            tx.put(BY_ORDER, order_key(record.app, record.order), key)
        if record.network.ipv4:
            tx.put(BY_IPV4, record.network.ipv4, key)
        if record.first_id is not None:
            tx.put(BY_FIRST_ID, id_key(record.first_id), key)
        self._hold(tx, Resources(), record.holds)
        self.add_version(tx, record)
        self._announce(tx, record.id)

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        """Write `record` with `fields` replaced and the event appended; wakes whoever waits for it after the commit."""
        assert record.state is not State.DESTROYED, f"machine {record.id} is gone and stays so"
        if event is not None:
            fields |= self._append(tx, record, event)
        changed = msgspec.structs.replace(record, **fields, updated_at=self._later_than(record))
        tx.put(MACHINES, record.id, changed)
        if changed.first_id is not None and record.first_id is None:
            tx.put(BY_FIRST_ID, id_key(changed.first_id), MachineKey(id=record.id))
        self._hold(tx, record.holds, changed.holds)
        self._announce(tx, record.id)
        return changed

    def rename(self, tx: Tx, record: MachineRecord, name: str) -> MachineRecord:
        """Gives a machine another name. Raises `AlreadyExists` when another machine of the app has the name."""
        if name == record.name:
            return record
        if tx.get(BY_NAME, f"{record.app}/{name}") is not None:
            raise AlreadyExists(f"unique machine name violation, '{name}' is taken in app '{record.app}'")
        tx.delete(BY_NAME, f"{record.app}/{record.name}")
        tx.put(BY_NAME, f"{record.app}/{name}", MachineKey(id=record.id))
        return self.change(tx, record, Happened("rename", "renamed", source="user"), name=name)

    def _later_than(self, record: MachineRecord) -> float:
        """Also when the wall clock was set back: by this, spares tell one loss of a machine's host from the next."""
        now = self._clock.now()
        return now if now >= record.updated_at else math.nextafter(record.updated_at, math.inf)

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        """Move a destroyed machine out of every index; its record and events stay readable for a while."""
        self._unlist(tx, record)
        self._hold(tx, record.holds, Resources())
        volume = detach(tx, record, self._clock.now())
        if volume is not None:
            self.note_return(tx, volume, record)
        gone = msgspec.structs.replace(
            record,
            holds=Resources(),
            state=State.DESTROYED,
            updated_at=self._clock.now(),
            **self._append(tx, record, event),
        )
        tx.put(DESTROYED, record.id, gone)
        for key, _ in list(tx.scan(PINNED, f"{record.id}/")):
            tx.delete(PINNED, key)
        self._announce(tx, record.id)

    def note_attached(self, tx: Tx, record: MachineRecord, attached: VolumeId | None) -> MachineRecord:
        """Notes in the machine's history that it has the volume, and in that of the machine which lent it; `attached`
        is None where there is none."""
        if attached is None:
            return record
        volume = tx.get(VOLUMES, attached)
        if volume is not None:
            self.note_loan(tx, volume, record)
        return self.change(tx, record, volume_event("attached", attached))

    def note_loan(self, tx: Tx, volume: VolumeRecord, borrower: MachineRecord) -> None:
        """Notes the loan in the history of the machine that the volume was detached from, if that is here and stays."""
        self._tell_lender(tx, volume, "lent", f"{volume.id} to machine {borrower.id}")

    def note_return(self, tx: Tx, volume: VolumeRecord, borrower: MachineRecord) -> None:
        """Notes the return as `note_loan` does the loan, once the other machine does not have the volume any more."""
        self._tell_lender(tx, volume, "returned", f"{volume.id} from machine {borrower.id}")

    def _tell_lender(self, tx: Tx, volume: VolumeRecord, status: str, what: str) -> None:
        lender = None if volume.lent_by is None else tx.get(MACHINES, volume.lent_by)
        if lender is not None and tx.get(OPEN_MOVE_OF, lender.id) is None:
            self.change(tx, lender, volume_event(status, what))

    def leave(self, tx: Tx, record: MachineRecord) -> None:
        """Takes a machine off this node, since another node has it, with its history: nothing of it stays here but the
        name of the order that it was made for, so that the order is not filled again."""
        self._unlist(tx, record)
        self._hold(tx, record.holds, Resources())
        for bucket in _OF_MACHINE:
            for key, _ in list(tx.scan(bucket, f"{record.id}/")):
                tx.delete(bucket, key)
        self._announce(tx, record.id)

    def enter(
        self, tx: Tx, record: MachineRecord, versions: Sequence[VersionRecord], events: Sequence[EventRecord]
    ) -> None:
        """A machine that comes from another node, with its history; its newest version is in `versions`."""
        for version in versions:
            tx.put(VERSIONS, f"{record.id}/{version.version}", version)
        for event in events:
            tx.put(EVENTS, f"{record.id}/{event.id}", event)
        self.insert(tx, record)

    def _unlist(self, tx: Tx, record: MachineRecord) -> None:
        tx.delete(MACHINES, record.id)
        tx.delete(BY_APP, f"{record.app}/{record.id}")
        tx.delete(BY_NAME, f"{record.app}/{record.name}")
        if record.network.ipv4:
            tx.delete(BY_IPV4, record.network.ipv4)
        if record.first_id is not None:
            tx.delete(BY_FIRST_ID, id_key(record.first_id))

    def archived(self, tx: Tx, machine_id: MachineId, record: ArchiveRecord) -> None:
        """A destroyed machine's history is in the archive, so it may be dropped here; none is kept of one that was."""
        if tx.get(DESTROYED, machine_id) is not None:
            tx.put(ARCHIVED, machine_id, record)

    def forget(self, tx: Tx, machine_id: MachineId) -> None:
        """Drop the last traces of a destroyed machine."""
        record = tx.get(DESTROYED, machine_id)
        if record is not None and record.order is not None:
            tx.delete(BY_ORDER, order_key(record.app, record.order))
        tx.delete(DESTROYED, machine_id)
        tx.delete(ARCHIVED, machine_id)
        for key, _ in list(tx.scan(EVENTS, f"{machine_id}/")):
            tx.delete(EVENTS, key)
        for key, _ in list(tx.scan(VERSIONS, f"{machine_id}/")):
            tx.delete(VERSIONS, key)

    def events(self, reader: Reader, machine_id: MachineId, limit: int) -> list[EventRecord]:
        """The events of a machine, newest first."""
        return [event for _, event in reader.scan(EVENTS, f"{machine_id}/", limit=limit, reverse=True)]

    def next_version(self, reader: Reader, record: MachineRecord) -> Version:
        """Greater than all that the machine had, also when the wall clock was set back: clients compare them."""
        newest = next(iter(self.versions(reader, record.id, 1)), None)
        return Version(next_ulid(self._clock, record.version if newest is None else newest.version))

    def add_version(self, tx: Tx, record: MachineRecord) -> None:
        version = VersionRecord(
            version=record.version,
            config=record.config,
            image=record.image,
            container_images=record.container_images,
            created_at=self._clock.now(),
        )
        tx.put(VERSIONS, f"{record.id}/{record.version}", version)
        for old in _surplus(tx, record):
            tx.delete(VERSIONS, old)
            tx.delete(PINNED, old)

    def versions(self, reader: Reader, machine_id: MachineId, limit: int | None = None) -> list[VersionRecord]:
        """The versions of a machine, newest first."""
        return [version for _, version in reader.scan(VERSIONS, f"{machine_id}/", limit=limit, reverse=True)]

    def _append(self, tx: Tx, record: MachineRecord, happened: Happened) -> dict[str, Any]:
        event = EventRecord(
            id=EventId(next_ulid(self._clock, record.last_event)),
            type=happened.type,
            status=happened.status,
            source=happened.source,
            at=self._clock.now(),
            detail=happened.detail,
        )
        tx.put(EVENTS, f"{record.id}/{event.id}", event)
        count = record.events + 1
        if count > EVENTS_KEPT:
            oldest, _ = next(iter(tx.scan(EVENTS, f"{record.id}/", limit=1)))
            tx.delete(EVENTS, oldest)
            count -= 1
        return {"last_event": event.id, "events": count}

    def _hold(self, tx: Tx, before: Resources, after: Resources) -> None:
        hold(tx, before, after)

    def _announce(self, tx: Tx, machine_id: MachineId) -> None:
        tx.on_commit(lambda: self.changes.notify(machine_id))


async def all_machines(reader: Reader) -> AsyncIterator[MachineRecord]:
    """Every machine of the node, in the order of their ids; lets others run in between. A reader that is no snapshot
    has each as it is when it is read."""
    after: str | None = None
    while page := list(reader.scan(MACHINES, after=after, limit=_RECORDS_AT_ONCE)):
        for _, record in page:
            yield record
        after = page[-1][0]
        if len(page) == _RECORDS_AT_ONCE:
            await checkpoint()


def order_key(app: AppName, order: OrderId) -> str:
    """Orders are named by clients, so each app has names of its own."""
    return f"{app}/{order}"


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    app: AppName


_OWNERS = Bucket(DESTROYED.name, _Owner)
_SIZED = Bucket(VERSIONS.name, msgspec.Raw)  # whose values are not read
_OF_MACHINE = tuple(Bucket(each, msgspec.Raw) for each in (EVENTS.name, VERSIONS.name, PINNED.name))


def _surplus(tx: Tx, record: MachineRecord) -> list[str]:
    """The oldest versions beyond what is kept of a machine; never the newest one, nor the one that it runs or may fall
    back to, which is old where later updates failed."""
    in_use = {f"{record.id}/{each.version}" for each in (record, record.previous) if each is not None}
    surplus, count, size_bytes = list[str](), 0, 0
    for key, version in tx.scan(_SIZED, f"{record.id}/", reverse=True):
        count, size_bytes = count + 1, size_bytes + len(bytes(version))
        beyond = count > VERSIONS_KEPT or size_bytes > VERSIONS_KEPT_BYTES
        if beyond and count > 1 and key not in in_use:
            surplus.append(key)
    return surplus
