"""What is done to volumes without being asked: a snapshot a day, the end of snapshots that are too old and of volumes
that were deleted a day ago, the growth of those that are nearly full, and a TRIM a day.

When something is due follows from the records, so nothing is lost or done twice over restarts. Days are wall time; a
clock that is set while the daemon runs moves what is kept with it, so that it cannot cost anybody a snapshot.
"""

from functools import partial

from anyio.lowlevel import checkpoint

from hawker.clock import Clock
from hawker.config.machine import Mount
from hawker.containment import contained
from hawker.errors import HawkerError
from hawker.ids import VolumeId
from hawker.log import bind
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.move import OPEN_MOVE_OF
from hawker.record.volume import VOLUMES, Fstype, VolumeRecord, VolumeState
from hawker.settings import Settings
from hawker.store.contract import Store, Tx
from hawker.time_window import DAY_S
from hawker.volume.attachment import attached_to, mount_of, volume_id_of
from hawker.volume.backup_schedule import is_due
from hawker.volume.disks import Disks, Usage, disk_of
from hawker.volume.moved_files import MovedFile, MovedFiles
from hawker.volume.operations import SoftDeletes, Volumes
from hawker.volume.retention import Leaps, backup_due
from hawker.volume.snapshots import Snapshots

RETRY_S = 3600.0  # after a backup that could not be begun: the disk is full, say

_log = bind("hawker.keeper")


class Maintenance:
    def __init__(self, store: Store, clock: Clock, snapshots: Snapshots, soft_deletes: SoftDeletes) -> None:
        self._store = store
        self._clock = clock
        self._snapshots = snapshots
        self._soft_deletes = soft_deletes
        self._leaps = Leaps(clock)
        self._leap_s = 0.0  # that the records have not heard of
        self._again_at: dict[VolumeId, float] = {}  # monotonic

    async def serve(self, every_s: float) -> None:
        while True:
            with contained("volumes are looked after"):
                try:
                    await self.once()
                except (HawkerError, OSError) as error:
                    _log.error("volumes are not looked after", extra={"error": str(error)})
            await self._clock.sleep(every_s)

    async def once(self) -> None:
        """First of all, whether the clock was set: else a day that never passed would count."""
        self._leap_s += self._leaps.since_last_look()
        if self._leap_s:
            _log.warning("the wall clock was set", extra={"seconds": round(self._leap_s, 3)})
            await self._store.write(partial(self._shift, seconds=self._leap_s))
            self._leap_s = 0.0
        await self._soft_deletes.empty()
        await self._snapshots.expire()
        await self._back_up()

    def _shift(self, tx: Tx, seconds: float) -> None:
        self._soft_deletes.shift(tx, seconds)
        self._snapshots.shift(tx, seconds)

    async def _back_up(self) -> None:
        clock = self._clock
        for _, record in list(self._store.scan(VOLUMES)):
            await checkpoint()
            if self._is_due(record, clock.now()) and self._again_at.get(record.id, 0.0) <= clock.monotonic():
                await self._take(record)

    def _is_due(self, record: VolumeRecord, now: float) -> bool:
        is_kept = (
            record.auto_backup and not record.damaged and record.state in (VolumeState.CREATED, VolumeState.EXTENDING)
        )
        return is_kept and backup_due(record.created_at, record.backed_up_at, now)

    async def _take(self, record: VolumeRecord) -> None:
        try:
            await self._snapshots.take(record.app, record.id, automatic=True)
            self._again_at.pop(record.id, None)
        except HawkerError as error:
            self._again_at[record.id] = self._clock.monotonic() + RETRY_S
            _log.warning("a volume is not backed up", extra={"volume": record.id, "error": str(error)})


# Volumes that grow by themselves: one whose machine's mount has an `extend_threshold_percent` gets `add_size_gb`
# more when so much of it is used, up to `size_gb_limit`. Nothing is stored; a full host only makes it wait.


def larger_size(volume: VolumeRecord, mount: Mount, usage: Usage, max_gb: int) -> int | None:
    """The larger size in GB that a volume is to get; None while it has enough, or may have no more."""
    threshold, step = mount.extend_threshold_percent or 0, mount.add_size_gb or 0
    if not threshold or not step or usage.bytes_used * 100 < threshold * usage.bytes_total:
        return None
    size_gb = min(volume.size_gb + step, mount.size_gb_limit or max_gb, max_gb)
    return size_gb if size_gb > volume.size_gb else None


class Growth:
    def __init__(self, store: Store, settings: Settings, clock: Clock, disks: Disks | None, volumes: Volumes) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._disks = disks
        self._volumes = volumes

    async def serve(self, every_s: float) -> None:
        while True:
            with contained("volumes are looked after"):
                try:
                    await self.once()
                except (HawkerError, OSError) as error:
                    _log.error("volumes are not looked at", extra={"error": str(error)})
            await self._clock.sleep(every_s)

    async def once(self) -> None:
        for _, machine in list(self._store.scan(MACHINES)):
            mount = mount_of(machine.config)
            if mount is not None and mount.extend_threshold_percent and machine.state is State.STARTED:
                await self._look(machine, mount)

    async def _look(self, machine: MachineRecord, mount: Mount) -> None:
        """One that could not grow in use has its size from the next launch on: until then, its figures are the old."""
        volume_id, disks = volume_id_of(machine.config), self._disks
        volume = None if volume_id is None else attached_to(self._store, volume_id, machine.id)
        if disks is None or volume is None or volume.state is not VolumeState.CREATED or volume.behind:
            return
        usage = await disks.usage(disk_of(volume))
        size_gb = None if usage is None else larger_size(volume, mount, usage, self._settings.max_volume_gb)
        if size_gb is None:
            return
        fields = {"volume": volume.id, "machine": machine.id, "size_gb": size_gb}
        try:
            await self._volumes.extend(volume.app, volume.id, size_gb)
            _log.info("volume grows by itself", extra=fields)
        except HawkerError as error:
            _log.warning("volume cannot grow", extra={**fields, "error": str(error)})


# TRIM: what was deleted in a volume's file system takes no room of the host any more. Each has its own moment of the
# day, one is trimmed at a time, and each for a minute at most: the rest comes on the next day. Nothing is stored: a day
# whose moment no daemon saw is left out.

TRIM_S = 60.0


class Trims:
    """The trims of volumes that are mounted, here or in a guest."""

    def __init__(self, store: Store, clock: Clock, files: MovedFiles) -> None:
        self._store = store
        self._clock = clock
        self._files = files
        self._begun = clock.now()
        self._trimmed: dict[VolumeId, float] = {}
        self._rest: dict[VolumeId, int] = {}  # where to go on, in bytes

    async def serve(self, every_s: float) -> None:
        while True:
            with contained("volumes are looked after"):
                try:
                    await self.once()
                except HawkerError as error:
                    _log.error("volumes are not trimmed", extra={"error": str(error)})
            await self._clock.sleep(every_s)

    async def once(self) -> None:
        there = [record for _, record in self._store.scan(VOLUMES)]
        for known in self._trimmed.keys() - {record.id for record in there}:
            del self._trimmed[known]
            self._rest.pop(known, None)
        for record in there:
            await checkpoint()
            if self._is_due(record):
                self._trimmed[record.id] = self._clock.now()
                await self._trim(record)

    def _is_due(self, record: VolumeRecord) -> bool:
        """A move trims what it moves, and watches what changes."""
        if record.machine is None or record.fstype is not Fstype.EXT4 or record.state is not VolumeState.CREATED:
            return False
        last = self._trimmed.get(record.id, max(self._begun, record.created_at))
        is_moved = self._store.get(OPEN_MOVE_OF, record.id) is not None
        return is_due(record.id, last, self._clock.now(), DAY_S, None) and not is_moved

    async def _trim(self, record: VolumeRecord) -> None:
        clock, start = self._clock, self._rest.pop(record.id, 0)
        until = clock.monotonic() + TRIM_S
        try:
            while (following := await self._files.trim(MovedFile(record.id), start)) is not None:
                start = following
                if clock.monotonic() >= until:
                    self._rest[record.id] = start
                    return
        except (HawkerError, OSError) as error:
            _log.warning("a volume is not trimmed", extra={"volume": record.id, "error": str(error)})
