"""The operations on volumes as single transactions: check, change the record, accept the run that does the rest.

What is acknowledged is on disk when these return. Nothing here touches the host; flows do.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from hawker.api.bounds import MAX_RETENTION_DAYS, MIN_RETENTION_DAYS
from hawker.api.contract.volume import CreateVolumeRequest
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, NoRoom, NotFound, NotServed, Unprocessable, WrongState
from hawker.failpoint import reach
from hawker.fsm.contract import Flow, WhenBusy
from hawker.fsm.runner import Runner
from hawker.fsm.view import RunView
from hawker.ids import AppName, VolumeId, new_volume_id
from hawker.node import Capacity, Resources, shortfall
from hawker.record.app import APPS
from hawker.record.capacity import used
from hawker.record.volume import GOING, IN_MAKING, Fstype, VolumeRecord, VolumeState, volume_resource
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.volume.disks import Disks
from hawker.volume.flows import VOLUME_CREATE, VOLUME_DESTROY, VOLUME_EXTEND, VolumeInput
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


# From a request for a volume to its first record: names, sizes and how it is kept. Whether there is room is asked
# when it is created.

MAX_VOLUMES = 1000
"""Of one app, with those that are to be destroyed."""

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
    ) -> None:
        self._store = store
        self._settings = settings
        self._volume_table = volume_table
        self._disks = disks
        self._runner = runner
        self._room = room

    @property
    def disks(self) -> Disks:
        """Raises `NotServed` on a node without volumes."""
        if self._disks is None:
            raise NotServed("this node has no volumes: its driver runs machines in the host's own file system")
        return self._disks

    def get(self, app: AppName, volume_id: str) -> VolumeRecord:
        return self._volume_table.find(self._store, app, volume_id)

    async def create(self, record: VolumeRecord, flow: Flow[Any] = VOLUME_CREATE) -> VolumeRecord:
        """Admit and create in one transaction; `flow` fills it. Raises `NoRoom`, `Unprocessable` when the app has too
        many."""
        assert self.disks is not None

        def apply(tx: Tx) -> VolumeRecord:
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
        self._check_room(tx, record.holds, record.region)
        self._volume_table.insert(tx, record)

    async def extend(self, app: AppName, volume_id: str, size_gb: int) -> VolumeRecord:
        """Promise the new size. One that it has already is no change. Raises `NoRoom`, `Unprocessable` for less."""
        check_size(size_gb, self._settings.max_volume_gb)

        def apply(tx: Tx) -> VolumeRecord:
            record = self._changeable(tx, app, volume_id)
            if size_gb < record.size_gb:
                raise Unprocessable(f"size_gb: volume {record.id} has {record.size_gb} GB and cannot be made smaller")
            if size_gb == record.size_gb:
                return record
            self._check_room(tx, _more(record, size_gb), record.region)
            extended = self._volume_table.change(tx, record, size_gb=size_gb, state=VolumeState.EXTENDING)
            self._accept(tx, VOLUME_EXTEND, record.id)
            return extended

        assert self.disks is not None
        return await self._commit(VOLUME_EXTEND, apply)

    async def update(
        self, app: AppName, volume_id: str, *, retention: int | None, auto_backup: bool | None
    ) -> VolumeRecord:
        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            return self._volume_table.change(
                tx,
                record,
                snapshot_retention=record.snapshot_retention if retention is None else retention,
                auto_backup=record.auto_backup if auto_backup is None else auto_backup,
            )

        return await self._store.write(apply)

    async def delete(self, app: AppName, volume_id: str) -> VolumeRecord:
        """Let it go: it can be had back until `destroy_at`, and holds its room until then. Raises `WrongState` while a
        machine has it."""

        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            if record.state in GOING:
                return record
            return self._volume_table.let_go(tx, self._changeable(tx, app, volume_id))

        return await self._store.write(apply)

    async def destroy(self, volume_id: VolumeId) -> None:
        """For good, of one that was let go of. Raises `NotFound`, `WrongState` for any other."""

        def apply(tx: Tx) -> None:
            record = self._volume_table.get(tx, volume_id)
            if record.state is not VolumeState.PENDING_DESTROY or record.machine is not None:
                raise WrongState(f"volume {volume_id} is {record.state}, and not to be destroyed")
            self._volume_table.change(tx, record, state=VolumeState.DESTROYED)
            self._accept(tx, VOLUME_DESTROY, volume_id)

        await self._commit(VOLUME_DESTROY, apply)

    async def settled(self, volume_id: VolumeId, timeout_s: float) -> RunView | None:
        """The newest run at the volume, once it has ended or the time is over."""
        newest = next(iter(self._runner.list(resource=volume_resource(volume_id), limit=1)), None)
        if newest is None:
            return None
        try:
            return await self._runner.wait(newest.run_id, timeout_s)
        except (DeadlineExceeded, NotFound):
            return None

    def _changeable(self, reader: Reader, app: AppName, volume_id: str) -> VolumeRecord:
        record = self._volume_table.find(reader, app, volume_id)
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


def _more(record: VolumeRecord, size_gb: int) -> Resources:
    """What a larger size takes beyond what the volume holds."""
    return Resources(disk_mib=(size_gb - record.size_gb) * record.holds.disk_mib // record.size_gb)
