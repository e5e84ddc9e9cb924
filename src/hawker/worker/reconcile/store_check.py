"""The store against itself: indexes and the sum of what is held are copies of what the records say, and can be made
from them again. A transaction cannot tear them apart, but a damaged or hand-edited file, or a bug, can.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import anyio.lowlevel

from hawker.ids import MachineId, VolumeId
from hawker.node import Resources
from hawker.record.machine import (
    BY_APP,
    BY_FIRST_ID,
    BY_IPV4,
    BY_NAME,
    BY_ORDER,
    MACHINES,
    MachineRecord,
    id_key,
)
from hawker.record.move import MOVED, held_by_incoming
from hawker.record.node import USED
from hawker.record.volume import VOLUMES, VOLUMES_BY_APP, VolumeRecord
from hawker.store.contract import Bucket, Reader, Tx
from hawker.value_object import ValueObject
from hawker.worker.reconcile.findings import Finding, Kind
from hawker.worker.reconcile.gone import GoneHead, GoneMachine, heads
from hawker.worker.table import order_key

_ENTRIES_AT_ONCE = 1000

_Index = Mapping[str, MachineId | VolumeId]


class Entry(ValueObject, frozen=True):
    """A key of an index that is wrong, and what it should be; None: it should not be there."""

    bucket: Bucket[Any]
    key: str
    """The key of the entry, as it is in the index."""
    wanted: MachineId | VolumeId | None


class CapacityHolder(Protocol):
    """A record of a machine, or of a volume."""

    @property
    def holds(self) -> Resources: ...


def volumes_of(reader: Reader) -> list[VolumeRecord]:
    return [record for _, record in reader.scan(VOLUMES)]


def sum_of(holders: Iterable[CapacityHolder]) -> Resources:
    """Added up by name: thousands of values in between would be made for nothing."""
    totals = dict.fromkeys(Resources.__struct_fields__, 0)
    for record in holders:
        for name in totals:
            totals[name] += getattr(record.holds, name)
    return Resources(**totals)


def held_in_all(reader: Reader, machines: Collection[MachineRecord]) -> Resources:
    """The resources held by machines and volumes, and by what is on its way here."""
    return sum_of([*machines, *volumes_of(reader)]).plus(held_by_incoming(reader))


def wrong_entries(bucket: Bucket[Any], found: _Index, wanted: _Index) -> Iterator[Entry]:
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            yield Entry(bucket, key, wanted.get(key))


def indexes(
    reader: Reader, machines: Collection[MachineRecord], gone: Iterable[tuple[MachineId, GoneHead]]
) -> Iterator[tuple[Bucket[Any], _Index]]:
    """Each index as the records would have it; orders outlive their machines for a while."""
    yield BY_APP, {f"{record.app}/{record.id}": record.id for record in machines}
    yield BY_NAME, {f"{record.app}/{record.name}": record.id for record in machines}
    yield BY_IPV4, {record.network.ipv4: record.id for record in machines if record.network.ipv4}
    yield BY_FIRST_ID, {id_key(record.first_id): record.id for record in machines if record.first_id is not None}
    orders = {order_key(record.app, record.order): record.id for record in machines if record.order}
    orders |= {order_key(head.app, head.order): machine_id for machine_id, head in gone if head.order}
    yield BY_ORDER, orders_of_moved(reader) | orders
    yield VOLUMES_BY_APP, {f"{record.app}/{record.id}": record.id for record in volumes_of(reader)}


def orders_of_moved(reader: Reader) -> dict[str, MachineId]:
    """The orders of machines that are at another node: no record here names them, and none may be filled again."""
    moved = {key for key, _ in reader.sizes(MOVED)}
    return {key: pointer.id for key, pointer in reader.scan(BY_ORDER) if pointer.id in moved} if moved else {}


async def audit(
    reader: Reader, machines: Collection[MachineRecord], gone: Mapping[MachineId, GoneMachine]
) -> list[Finding]:
    """One finding for the sum and one for each index; `machines` and `gone` are all that `reader` has. Lets others run
    in between: `reader` must not change."""
    findings: list[Finding] = []
    used, total = reader.get(USED, "all") or Resources(), held_in_all(reader, machines)
    if used != total:
        detail = f"the books have {_amounts(used)}; the records hold {_amounts(total)}"
        findings.append(Finding(Kind.WRONG_SUM, "capacity", detail))
    for bucket, wanted in indexes(reader, machines, ((key, each.head) for key, each in gone.items())):
        await anyio.lowlevel.checkpoint()
        wrong = list(wrong_entries(bucket, await _entries(reader, bucket), wanted))
        if wrong:
            noun = "entry disagrees" if len(wrong) == 1 else "entries disagree"
            detail = f"{len(wrong)} {noun} with the records, the first is {wrong[0].key}"
            findings.append(Finding(Kind.WRONG_INDEX, bucket.name, detail))
    return findings


async def _entries(reader: Reader, bucket: Bucket[Any]) -> _Index:
    """What the index has; lets others run in between."""
    found: dict[str, MachineId | VolumeId] = {}
    after: str | None = None
    while page := list(reader.scan(bucket, after=after, limit=_ENTRIES_AT_ONCE)):
        found |= {key: pointer.id for key, pointer in page}
        after = page[-1][0]
        if len(page) == _ENTRIES_AT_ONCE:
            await anyio.lowlevel.checkpoint()
    return found


def set_right(tx: Tx) -> None:
    """Sum and indexes as the records have them. Changes nothing when they are."""
    machines = [record for _, record in tx.scan(MACHINES)]
    total = held_in_all(tx, machines)
    if (tx.get(USED, "all") or Resources()) != total:
        tx.put(USED, "all", total)
    for bucket, wanted in indexes(tx, machines, heads(tx)):
        found = {key: pointer.id for key, pointer in tx.scan(bucket)}
        for entry in wrong_entries(bucket, found, wanted):
            if entry.wanted is None:
                tx.delete(bucket, entry.key)
            else:
                tx.put(bucket, entry.key, bucket.type(id=entry.wanted))


def _amounts(held: Resources) -> str:
    cpus = f"{held.shared_cpus} shared and {held.performance_cpus} performance cpus"
    return f"{cpus}, {held.memory_mib} MiB of memory, {held.disk_mib} MiB of disk"
