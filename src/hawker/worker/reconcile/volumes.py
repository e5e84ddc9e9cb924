"""Volumes: store against host. A volume's file is removed only when its record says that it is destroyed; a file that
no record knows belongs to another store, or is newer than a backup that was restored, and is left alone.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from hawker.fsm import journal
from hawker.fsm.contract import Flow
from hawker.fsm.runner import Runner
from hawker.ids import MachineId, VolumeId
from hawker.machine import OFF, SETTLED, WITH_INSTANCE
from hawker.record.machine import MACHINES, MachineRecord, machine_resource
from hawker.record.volume import GONE_VOLUMES, VOLUMES, VolumeRecord, VolumeState, volume_resource
from hawker.runtime.driver import Driver
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.volume.attachment import attached_to, volume_id_of
from hawker.volume.disks import Disks, disk_of
from hawker.volume.flows import (
    VOLUME_CREATE,
    VOLUME_DESTROY,
    VOLUME_EXTEND,
    VOLUME_FETCH,
    VOLUME_FORK,
    VOLUME_RESTORE,
    VolumeInput,
)
from hawker.worker.lifecycle.start import runs
from hawker.worker.lifecycle.stop import REST, Rest
from hawker.worker.reconcile.findings import Finding, Kind

_RESTS = frozenset({VolumeState.CREATED, VolumeState.PENDING_DESTROY, VolumeState.SCHEDULING_DESTROY})
_BEGUN_BY: Mapping[VolumeState, Flow[Any]] = {
    VolumeState.CREATING: VOLUME_CREATE,
    VolumeState.RESTORING: VOLUME_RESTORE,
    VolumeState.ENABLING_REMOTE_EXPORT: VOLUME_FORK,
    VolumeState.HYDRATING: VOLUME_FORK,
    VolumeState.EXTENDING: VOLUME_EXTEND,
    VolumeState.DESTROYED: VOLUME_DESTROY,
}
"""The flow that is under way at a volume in a state that is no rest, unless it is filled from a backup."""


def _begun_by(record: VolumeRecord) -> Flow[Any]:
    is_fetched = record.state is VolumeState.RESTORING and record.source_backup is not None
    return VOLUME_FETCH if is_fetched else _BEGUN_BY[record.state]


class _Listed(ValueObject, frozen=True):
    files: frozenset[VolumeId]
    mounted: frozenset[VolumeId]
    strays: frozenset[str]


class VolumeLook:
    """Looks, and changes nothing. The host is listed before the records are read and once more afterwards."""

    def __init__(self, store: Store, driver: Driver, disks: Disks | None) -> None:
        self._store = store
        self._driver = driver
        self._disks = disks

    async def findings(self) -> list[Finding]:
        disks, store = self._disks, self._store
        if disks is None:
            return []
        before = await _list(disks)
        with store.snapshot() as reader:
            volumes = {record.id: record for _, record in reader.scan(VOLUMES)}
            gone = frozenset(VolumeId(key) for key, _ in reader.scan(GONE_VOLUMES))
            found = [*_forsaken(reader, volumes), *_attachments(reader, volumes)]
            quiet = {each: record for each, record in volumes.items() if _is_quiet(reader, record)}
            used = {each for each, record in quiet.items() if _is_in_use(reader, record)}
        after = await _list(disks)
        files, mounted = before.files & after.files, before.mounted & after.mounted
        found += [Finding(Kind.STRAY_VOLUME, each, "its file is here") for each in sorted(files & gone)]
        foreign = files - gone - volumes.keys()
        found += [Finding(Kind.FOREIGN_VOLUME, each, "no record knows its file") for each in sorted(foreign)]
        found += [Finding(Kind.STRAY_VOLUME_MOUNT, each, "of no volume") for each in before.strays & after.strays]
        guests = self._driver.features.disks  # have volumes by themselves: here nothing is mounted, or left so
        left = frozenset() if guests else mounted & quiet.keys() - used
        found += [Finding(Kind.VOLUME_LEFT_MOUNTED, each, "no running machine has it") for each in sorted(left)]
        lost = {each for each in quiet if each not in before.files | after.files}
        found += [Finding(Kind.LOST_VOLUME, each, "its file is not on this host") for each in sorted(lost)]
        held = await disks.held(frozenset(quiet) - used | {each for each in used if quiet[each].behind})
        found += [Finding(Kind.HELD_VOLUME, each, f"held by {', '.join(who)}") for each, who in sorted(held.items())]
        unmounted = frozenset() if guests else used - lost - before.mounted - after.mounted
        what = "its machine runs, but the volume is not mounted"
        found += [Finding(Kind.LOST_VOLUME_MOUNT, each, what) for each in sorted(unmounted)]
        return [each for each in found if self._still(volumes, each)]

    def _still(self, volumes: Mapping[VolumeId, VolumeRecord], finding: Finding) -> bool:
        """Whether the record, if there is one, is what it was when the host was looked at."""
        record = volumes.get(VolumeId(finding.about))
        return record is None or self._store.get(VOLUMES, record.id) == record


class VolumeRepairs:
    """Each looks again whether its finding still is one."""

    def __init__(self, store: Store, disks: Disks | None, runner: Runner[Any]) -> None:
        self._store = store
        self._disks = disks
        self._runner = runner

    def of(self, finding: Finding) -> Callable[[], Awaitable[None]]:
        volume_id = VolumeId(finding.about)
        match finding.kind:
            case Kind.STRAY_VOLUME:
                return partial(self._remove, volume_id)
            case Kind.STRAY_VOLUME_MOUNT:
                return partial(self._served.clear, finding.about)
            case Kind.FORSAKEN_VOLUME:
                return partial(self._write, partial(self._take_up, volume_id=volume_id))
            case Kind.WRONG_ATTACHMENT:
                return partial(self._write, _attach_rightly)
            case Kind.VOLUME_LEFT_MOUNTED:
                return partial(self._unmount, volume_id)
            case _:
                assert finding.kind is Kind.LOST_VOLUME_MOUNT, finding.kind
                return partial(self._mount, volume_id)

    @property
    def _served(self) -> Disks:
        assert self._disks is not None, "there are findings of volumes only where there are volumes"
        return self._disks

    async def _write(self, apply: Callable[[Tx], None]) -> None:
        await self._store.write(apply)

    async def _remove(self, volume_id: VolumeId) -> None:
        """Only what a record calls destroyed."""
        store = self._store
        if store.get(VOLUMES, volume_id) is None and store.get(GONE_VOLUMES, volume_id) is not None:
            await self._served.remove(volume_id)

    def _take_up(self, tx: Tx, volume_id: VolumeId) -> None:
        record = tx.get(VOLUMES, volume_id)
        if record is None or record.state in _RESTS or _has_run(tx, volume_id):
            return
        self._runner.accept(tx, _begun_by(record), volume_resource(volume_id), VolumeInput())

    async def _unmount(self, volume_id: VolumeId) -> None:
        """That of a machine by a run of the machine, so that its next launch waits for it."""
        record = self._store.get(VOLUMES, volume_id)
        if record is None:
            return
        if record.machine is not None:
            return await self._write(partial(self._rest, machine_id=record.machine))
        await self._served.unmount(volume_id, unless=lambda: not self._is_free(volume_id))

    def _is_free(self, volume_id: VolumeId) -> bool:
        record = self._store.get(VOLUMES, volume_id)
        return record is None or (record.machine is None and not _has_run(self._store, volume_id))

    def _rest(self, tx: Tx, machine_id: MachineId) -> None:
        record = tx.get(MACHINES, machine_id)
        resource = machine_resource(machine_id)
        if record is not None and not runs(record) and next(journal.newest(tx, resource, opened=True), None) is None:
            self._runner.accept(tx, REST, resource, Rest())

    async def _mount(self, volume_id: VolumeId) -> None:
        """Where the machine has it still; the machine does not notice."""
        store = self._store
        record = store.get(VOLUMES, volume_id)
        if record is not None and _is_quiet(store, record) and _is_in_use(store, record):
            await self._served.mount(disk_of(record))


async def _list(disks: Disks) -> _Listed:
    return _Listed(frozenset(await disks.list()), await disks.mounted(), frozenset(await disks.strays()))


def _forsaken(reader: Reader, volumes: Mapping[VolumeId, VolumeRecord]) -> list[Finding]:
    return [
        Finding(Kind.FORSAKEN_VOLUME, each, f"it is {record.state} and no run is at it")
        for each, record in volumes.items()
        if record.state not in _RESTS and not _has_run(reader, each)
    ]


def _attachments(reader: Reader, volumes: Mapping[VolumeId, VolumeRecord]) -> list[Finding]:
    """Where the records of a volume and of its machine disagree, in either direction. A machine that is off may be
    without its volume, which somebody has detached."""
    found = []
    for each, record in volumes.items():
        machine = None if record.machine is None else reader.get(MACHINES, record.machine)
        if record.machine is not None and (machine is None or volume_id_of(machine.config) != each):
            what = f"its record says that machine {record.machine} has it"
            found.append(Finding(Kind.WRONG_ATTACHMENT, each, what))
    for _, machine in reader.scan(MACHINES):
        has = volume_id_of(machine.config)
        if machine.state not in OFF and has is not None and has in volumes and volumes[has].machine is None:
            what = f"machine {machine.id} has it, but its record names no machine"
            found.append(Finding(Kind.WRONG_ATTACHMENT, has, what))
    return found


def _attach_rightly(tx: Tx) -> None:
    """Detach from machines that are gone, then attach what is free to the machine that says it has it."""
    for each, record in list(tx.scan(VOLUMES)):
        machine = None if record.machine is None else tx.get(MACHINES, record.machine)
        if record.machine is not None and (machine is None or volume_id_of(machine.config) != record.id):
            tx.put(VOLUMES, each, msgspec.structs.replace(record, machine=None))
    for _, machine in tx.scan(MACHINES):
        has = volume_id_of(machine.config)
        volume = None if has is None or machine.state in OFF else tx.get(VOLUMES, has)
        if volume is not None and volume.machine is None:
            tx.put(VOLUMES, volume.id, msgspec.structs.replace(volume, machine=machine.id, unused=False))


def _is_quiet(reader: Reader, record: VolumeRecord) -> bool:
    """No run is at it, nor at its machine."""
    if record.state not in _RESTS or _has_run(reader, record.id):
        return False
    if record.machine is None:
        return True
    machine = reader.get(MACHINES, record.machine)
    busy = next(journal.newest(reader, machine_resource(record.machine), opened=True), None) is not None
    return machine is not None and machine.state in SETTLED and not busy


def _is_in_use(reader: Reader, record: VolumeRecord) -> bool:
    machine: MachineRecord | None = None if record.machine is None else reader.get(MACHINES, record.machine)
    if machine is None or attached_to(reader, record.id, machine.id) is None:
        return False
    return runs(machine) and machine.state in WITH_INSTANCE


def _has_run(reader: Reader, volume_id: VolumeId) -> bool:
    return next(journal.newest(reader, volume_resource(volume_id), opened=True), None) is not None
