"""The operations on volumes as single transactions: check, change the record, accept the run that does the rest. Soft
delete is one of them.

What is acknowledged is on disk when these return. Nothing here touches the host; flows do.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from hawker.api.bounds import MAX_RETENTION_DAYS, MIN_RETENTION_DAYS
from hawker.api.contract.volume import CreateVolumeRequest, UpdateVolumeRequest
from hawker.clock import Clock
from hawker.errors import (
    DeadlineExceeded,
    HawkerError,
    NoRoom,
    NotFound,
    NotServed,
    Unavailable,
    Unprocessable,
    WrongState,
)
from hawker.failpoint import reach
from hawker.fsm import journal
from hawker.fsm.contract import Flow, Resource, WhenBusy
from hawker.fsm.runner import Runner
from hawker.fsm.view import RunView
from hawker.ids import AppName, VolumeId, new_volume_id
from hawker.log import bind
from hawker.machine import OFF
from hawker.node import Capacity, Resources, shortfall
from hawker.quota.quotas import Quotas
from hawker.record.app import APPS, org_of
from hawker.record.machine import MACHINES, MachineRecord, machine_resource
from hawker.record.move import check_here
from hawker.record.node import closed, used
from hawker.record.org import Amount
from hawker.record.volume import GOING, IN_MAKING, VOLUMES, Fstype, VolumeRecord, VolumeState, volume_resource
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.volume.disks import Disks
from hawker.volume.flows import VOLUME_CREATE, VOLUME_DESTROY, VOLUME_EXTEND, VolumeInput
from hawker.volume.losses import check_usable
from hawker.volume.table import VolumeTable

DEFAULT_GB = 3
DEFAULT_RETENTION_DAYS = 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def new_volume(
    clock: Clock, app: AppName, region: str, order: CreateVolumeRequest, *, encrypted: bool, max_gb: int
) -> VolumeRecord:
    """An empty volume. One node is one zone, so what asks for zones and hosts is left aside. Raises `Unprocessable`."""
    now, size_gb = clock.now(), DEFAULT_GB if order.size_gb is None else order.size_gb
    check_size(size_gb, max_gb)
    if order.fstype is not None and Fstype(order.fstype) is Fstype.RAW:
        raise Unprocessable("fstype: raw volumes are not served by this node's driver: its machines mount filesystems")
    days = DEFAULT_RETENTION_DAYS if order.snapshot_retention is None else order.snapshot_retention
    check_retention(days)
    return VolumeRecord(
        id=new_volume_id(clock),
        app=app,
        name=volume_name(order.name),
        region=region,
        state=VolumeState.CREATING,
        size_gb=size_gb,
        encrypted=encrypted,
        snapshot_retention=days,
        auto_backup=order.auto_backup_enabled is not False,
        created_at=now,
        updated_at=now,
    )


def volume_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Unprocessable(
            f"name: {text!r:.80} is not a volume's name: use up to 63 letters, digits, dashes and underscores"
        )
    return text


def check_size(size_gb: int, max_gb: int) -> None:
    if not 1 <= size_gb <= max_gb:
        raise Unprocessable(f"size_gb must be between 1 and {max_gb}, not {size_gb}")


def check_retention(days: int) -> None:
    if not MIN_RETENTION_DAYS <= days <= MAX_RETENTION_DAYS:
        raise Unprocessable(
            f"snapshot_retention must be between {MIN_RETENTION_DAYS} and {MAX_RETENTION_DAYS} days, not {days}"
        )


REST_S = 5.0
"""The seconds that a detachment waits for what is under way at the machine: a machine that has just stopped is tidied
up."""

MAX_VOLUMES = 1000
"""The most volumes of one app, with those that are to be destroyed."""

R = TypeVar("R")


class Volumes:
    """`room` answers what the node has; asked inside each transaction that takes some of it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        volume_table: VolumeTable,
        disks: Disks | None,
        runner: Runner[Any],
        room: Callable[[], Capacity],
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._settings = settings
        self._volume_table = volume_table
        self._disks = disks
        self._runner = runner
        self._room = room
        self._quotas = quotas

    @property
    def disks(self) -> Disks:
        """The node's disks. Raises `NotServed` on a node without volumes."""
        if self._disks is None:
            raise NotServed("this node has no volumes: its driver runs machines in the host's own file system")
        return self._disks

    def get(self, app: AppName, volume_id: str) -> VolumeRecord:
        return self._volume_table.find(self._store, app, volume_id)

    async def create(self, record: VolumeRecord, flow: Flow[Any] = VOLUME_CREATE) -> VolumeRecord:
        """Admit and create in one transaction; `flow` fills it. Raises `NoRoom`, `Unprocessable` when the app has too
        many, `Unavailable` on a node that takes nothing new, so that the broker goes on to the next; a copy can be
        made nowhere else."""
        assert self.disks is not None
        is_copy = record.source_snapshot is not None or record.source_volume is not None

        def apply(tx: Tx) -> VolumeRecord:
            reason = None if is_copy else closed(tx)
            if reason is not None:
                raise Unavailable(f"{reason}: nothing was created")
            self.admit(tx, record)
            self._accept(tx, flow, record.id)
            return record

        return await self._commit(flow, apply)

    def admit(self, tx: Tx, record: VolumeRecord) -> None:
        """Write a new volume's record if it may be. The caller accepts the run that makes it."""
        if tx.get(APPS, record.app) is None:
            raise NotFound("app not found")
        if sum(1 for _ in self._volume_table.of_app(tx, record.app)) >= MAX_VOLUMES:
            raise Unprocessable(f"an app has at most {MAX_VOLUMES} volumes, with those that are to be destroyed")
        self._quotas.check(tx, record.app, self._quotas.count.of_volume(record.size_gb))
        self._check_room(tx, record.holds, record.region)
        self._volume_table.insert(tx, record)

    async def extend(self, app: AppName, volume_id: str, size_gb: int) -> VolumeRecord:
        """Promise the new size. One that it has already is no change. Raises `NoRoom`, `Unprocessable` for less,
        `WrongState` while a fork is copied from it."""
        check_size(size_gb, self._settings.max_volume_gb)

        def apply(tx: Tx) -> VolumeRecord:
            record = self._changeable(tx, app, volume_id)
            check_usable(record)
            if size_gb < record.size_gb:
                raise Unprocessable(f"size_gb: volume {record.id} has {record.size_gb} GB and cannot be made smaller")
            if size_gb == record.size_gb:
                return record
            _check_copied(tx, record)
            more = _more(record, size_gb)
            self._quotas.check(tx, record.app, Amount(disk_mb=more.disk_mib))
            self._check_room(tx, more, record.region)
            extended = self._volume_table.change(tx, record, size_gb=size_gb, state=VolumeState.EXTENDING)
            self._accept(tx, VOLUME_EXTEND, record.id)
            return extended

        assert self.disks is not None
        return await self._commit(VOLUME_EXTEND, apply)

    async def update(self, app: AppName, volume_id: str, change: UpdateVolumeRequest) -> VolumeRecord:
        """Changes a volume's settings. Raises `MoveUnderWay` when what is lost of it is to be accepted while it
        moves."""
        days, kept = change.snapshot_retention, change.auto_backup_enabled

        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            if change.accept_damage and record.damaged:
                check_here(tx, record.id)
                record = self._volume_table.accept_damage(tx, record)
            return self._volume_table.change(
                tx,
                record,
                snapshot_retention=record.snapshot_retention if days is None else days,
                auto_backup=record.auto_backup if kept is None else kept,
            )

        return await self._store.write(apply)

    async def delete(self, app: AppName, volume_id: str) -> VolumeRecord:
        """Let it go: it can be undeleted until `destroy_at`, and holds its room until then. Raises `WrongState` while a
        machine has it."""

        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            if record.state in GOING:
                return record
            return self._volume_table.let_go(tx, self._changeable(tx, app, volume_id))

        return await self._store.write(apply)

    async def destroy(self, volume_id: VolumeId) -> None:
        """Destroys a volume for good that was let go of. Raises `NotFound`, `WrongState` for any other."""

        def apply(tx: Tx) -> None:
            record = self._volume_table.get(tx, volume_id)
            if record.state is not VolumeState.PENDING_DESTROY or record.machine is not None:
                raise WrongState(f"volume {volume_id} is {record.state}, and not to be destroyed")
            self._volume_table.change(tx, record, state=VolumeState.DESTROYED)
            self._accept(tx, VOLUME_DESTROY, volume_id)

        await self._commit(VOLUME_DESTROY, apply)

    async def detach(self, app: AppName, volume_id: str, may: Callable[[Tx, MachineRecord], None]) -> VolumeRecord:
        """Detaches a volume from its stopped machine, which takes it back when it starts, if it is free then. A free
        volume is no change. `may` refuses in the machine's name, or notes it. Raises `WrongState`."""

        has = self._volume_table.find(self._store, app, volume_id).machine
        if has is not None:
            await self._finished(machine_resource(has), REST_S)

        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            check_here(tx, record.id)
            machine = None if record.machine is None else tx.get(MACHINES, record.machine)
            if machine is None:
                return record
            if machine.state not in OFF or journal.active(tx, machine_resource(machine.id)) is not None:
                raise WrongState(
                    f"machine {machine.id}, which has volume {record.id}, is {machine.state} and not at rest: stop it"
                    f" first with `hawker machine stop {machine.id}`"
                )
            may(tx, machine)
            return self._volume_table.change(tx, record, machine=None, lent_by=record.lent_by or machine.id)

        return await self._store.write(apply)

    async def move(self, app: AppName, volume_id: str, to: AppName) -> VolumeRecord:
        """Moves a volume with its snapshots to another app of the organization. Raises `NotFound`, `WrongState` while a
        machine has it, `QuotaExceeded`, `Unprocessable`."""

        def apply(tx: Tx) -> VolumeRecord:
            record = self._changeable(tx, app, volume_id)
            if record.machine is not None:
                raise WrongState(
                    f"volume {record.id} is attached to machine {record.machine}: stop that machine, then"
                    f" `hawker volumes detach {record.id}`"
                )
            target = tx.get(APPS, to)
            if target is None or target.org != org_of(tx, app):
                raise NotFound(f"app '{to}' not found in the organization of app '{app}'")
            if to == app:
                return record
            if sum(1 for _ in self._volume_table.of_app(tx, to)) >= MAX_VOLUMES:
                raise Unprocessable(f"an app has at most {MAX_VOLUMES} volumes, with those that are to be destroyed")
            self._volume_table.leave(tx, record)
            self._quotas.check(tx, to, self._quotas.count.of_volume(record.size_gb))
            return self._volume_table.enter(tx, record, to)

        return await self._store.write(apply)

    async def settled(self, volume_id: VolumeId, timeout_s: float) -> RunView | None:
        """The newest run at the volume, once it has ended or the time is over."""
        return await self._finished(volume_resource(volume_id), timeout_s)

    async def _finished(self, resource: Resource, timeout_s: float) -> RunView | None:
        newest = next(iter(self._runner.list(resource=resource, limit=1)), None)
        if newest is None:
            return None
        try:
            return await self._runner.wait(newest.run_id, timeout_s)
        except (DeadlineExceeded, NotFound):
            return None

    def _changeable(self, reader: Reader, app: AppName, volume_id: str) -> VolumeRecord:
        record = self._volume_table.find(reader, app, volume_id)
        check_here(reader, record.id)
        if record.state in GOING or record.state in IN_MAKING:
            raise WrongState(f"volume {record.id} is {record.state} and cannot be changed now")
        return record

    def _check_room(self, tx: Reader, asked: Resources, region: str) -> None:
        missing = shortfall(self._room(), used(tx), asked)
        if missing:
            raise NoRoom(
                f"could not find a candidate host: no host in region '{region}' has room for the volume, short of "
                f"{missing['disk_mb']} MiB of disk",
                scope="region",
                shortfall=missing,
            )

    def _accept(self, tx: Tx, flow: Flow[Any], volume_id: VolumeId) -> None:
        self._runner.accept(tx, flow, volume_resource(volume_id), VolumeInput(), when_busy=WhenBusy.QUEUE)

    async def _commit(self, flow: Flow[Any], apply: Callable[[Tx], R]) -> R:
        """Durably. Once it returns the operation is promised, whether the answer arrives or not."""
        reach(f"{flow.name}.accept.before")
        promised = await self._store.write(apply)
        reach(f"{flow.name}.accept.after")
        return promised


def _check_copied(reader: Reader, record: VolumeRecord) -> None:
    """A fork was promised the size that its source had: a file that grew before it was copied is larger than that."""
    for _, other in reader.scan(VOLUMES):
        if other.source_volume == record.id and other.state in IN_MAKING:
            raise WrongState(f"volume {record.id} is being forked as {other.id}: extend it once that is made")


def _more(record: VolumeRecord, size_gb: int) -> Resources:
    """What a larger size takes beyond what the volume holds."""
    return Resources(disk_mib=(size_gb - record.size_gb) * record.holds.disk_mib // record.size_gb)


# The end of a volume that was deleted: for a day it can be taken back as it was, then it is gone. `Volumes.delete`
# lets go of it; the flow that removes the file is begun here, once its day is over.

_log = bind("hawker.farewell")
_LEAVING = frozenset({VolumeState.SCHEDULING_DESTROY, VolumeState.PENDING_DESTROY})


class SoftDeletes:
    def __init__(self, store: Store, clock: Clock, volume_table: VolumeTable, volumes: Volumes) -> None:
        self._store = store
        self._clock = clock
        self._volume_table = volume_table
        self._volumes = volumes

    async def undelete(self, app: AppName, volume_id: str) -> VolumeRecord:
        """Takes a deletion back. What an interrupted run has left smaller than promised, the reconciler extends. Raises
        `WrongState` when the volume was not deleted; one that is gone is `NotFound`."""

        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            if record.state not in _LEAVING:
                raise WrongState(f"volume {volume_id} is {record.state}, so there is nothing to take back")
            state = VolumeState.EXTENDING if record.made_gb < record.size_gb else VolumeState.CREATED
            return self._volume_table.change(tx, record, state=state, destroy_at=None)

        return await self._store.write(apply)

    async def empty(self) -> list[VolumeId]:
        """Begin the end of those whose day is over; which these are."""
        now, begun = self._clock.now(), []
        for _, record in list(self._store.scan(VOLUMES)):
            if record.state not in _LEAVING or record.destroy_at is None or record.destroy_at > now:
                continue
            try:
                await self._volumes.destroy(record.id)
            except HawkerError as error:
                _log.warning("a volume is not removed", extra={"volume": record.id, "error": str(error)})
                continue
            begun.append(record.id)
            _log.info("volume is removed", extra={"volume": record.id})
        return begun

    def shift(self, tx: Tx, seconds: float) -> None:
        """The wall clock was set: a day is as long as it would have been."""
        for _, record in list(tx.scan(VOLUMES)):
            if record.destroy_at is not None:
                self._volume_table.change(tx, record, destroy_at=record.destroy_at + seconds)
