"""When a volume is backed up off its host without being asked, and when what is there is thinned out.

Nothing of the schedule is stored: when a volume was backed up last is read from where backups go. So a killed daemon,
a restored store and another host that has the volume now agree about it, and a backup ordered by hand counts.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from hawker.backup.format import saved_at
from hawker.clock import Clock
from hawker.containment import contained
from hawker.errors import HawkerError, Moved, MoveUnderWay, WrongState
from hawker.fair.table import BACKUPS
from hawker.fsm import journal
from hawker.fsm.run import ENDED, State
from hawker.ids import VolumeId
from hawker.log import bind
from hawker.record.app import org_of
from hawker.record.volume import VOLUMES, VolumeRecord, VolumeState, backup_resource
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.time_window import DAY_S, TimeWindow, parse_window
from hawker.volume.backups import VolumeBackups
from hawker.volume.disks import Backups
from hawker.volume.flows import VOLUME_BACKUP, SendBackup

RETRY_S = 3600.0  # after a backup that failed or could not be begun
PRUNE_LOOK_S = 3600.0

_log = bind("hawker.keeper")


def share_of(volume_id: VolumeId) -> float:
    """The place of the volume's moment in a period or window, from 0 to 1: so that those of a fleet lie apart."""
    return int.from_bytes(hashlib.blake2b(volume_id.encode(), digest_size=4).digest()) / 2**32


def is_due(volume_id: VolumeId, last: float, now: float, every_s: float, window: TimeWindow | None) -> bool:
    """`last` is when it was backed up last, or created. Without a window each period has one moment; what was missed
    is made up for once. With one, a backup begins only while it is open, after the volume's moment in it."""
    if window is None:
        late_s = share_of(volume_id) * every_s
        return last < (now - late_s) // every_s * every_s + late_s
    opened = window.opened(now)
    if opened is None or now < opened + share_of(volume_id) * min(window.length_s, every_s):
        return False
    return now - last >= every_s - (min(window.length_s, every_s / 2) if every_s >= DAY_S else 0.0)


class BackupSchedule:
    """`once` begins what is due, and no more than run at a time: each has a snapshot on this host's disk until it has
    ended. Those that wait the longest come first."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, backups: VolumeBackups, kept: Backups) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._backups = backups
        self._kept = kept
        self._window = None if settings.backup_window is None else parse_window(settings.backup_window)
        self._saved: dict[VolumeId, float] = {}
        self._again_at: dict[VolumeId, float] = {}  # monotonic
        self._prune_at = clock.monotonic() + PRUNE_LOOK_S * clock.random()

    async def serve(self, every_s: float) -> None:
        """A prune may take hours, and keeps no backup from its moment."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve_prunes, every_s)
            await self._serve_backups(every_s)

    async def _serve_prunes(self, every_s: float) -> None:
        while True:
            with contained("a repository is pruned"):
                await self._prune()
            await self._clock.sleep(every_s)

    async def _serve_backups(self, every_s: float) -> None:
        while True:
            with contained("volumes are looked after"):
                try:
                    await self.once()
                except (HawkerError, OSError) as error:
                    _log.error("volumes are not backed up", extra={"error": str(error)})
            await self._clock.sleep(every_s)

    async def once(self) -> None:
        """Begins backups that are due, as many as may go on at once. Raises what listing backups raises."""
        under_way = Counter(sent.backup.partition("/")[0] for sent in self._under_way())
        for record in sorted(await self._due(), key=lambda each: (self._last(each), each.id)):
            org = org_of(self._store, record.app)
            if under_way.total() >= BACKUPS.total:
                return
            if under_way[org] < BACKUPS.each and await self._begin(record):
                under_way[org] += 1

    def _under_way(self) -> Iterator[SendBackup]:
        runs = (run for run in journal.open_runs(self._store) if run.flow == VOLUME_BACKUP.name)
        return (msgspec.msgpack.decode(run.input, type=SendBackup) for run in runs)

    async def _due(self) -> list[VolumeRecord]:
        """Where backups go is asked only for volumes that are due by what is known."""
        found = []
        for _, record in list(self._store.scan(VOLUMES)):
            await checkpoint()
            if self._may(record) and self._is_due(record):
                self._saved[record.id] = max(self._saved.get(record.id, 0.0), await self._saved_at(record))
                if self._is_due(record):
                    found.append(record)
        self._saved = {key: at for key, at in self._saved.items() if self._store.get(VOLUMES, key) is not None}
        return found

    def _may(self, record: VolumeRecord) -> bool:
        clock = self._clock
        if not record.auto_backup or record.damaged or record.state not in (VolumeState.CREATED, VolumeState.EXTENDING):
            return False
        if self._again_at.get(record.id, 0.0) > clock.monotonic():
            return False
        run = next(journal.newest(self._store, backup_resource(record.id)), None)
        if run is None or (run.state is State.DONE):
            return True
        return run.state in ENDED and clock.now() - (run.ended_at or 0.0) >= RETRY_S

    def _is_due(self, record: VolumeRecord) -> bool:
        every_s = self._settings.backup_every_s
        return is_due(record.id, self._last(record), self._clock.now(), every_s, self._window)

    def _last(self, record: VolumeRecord) -> float:
        return self._saved.get(record.id, record.created_at)

    async def _saved_at(self, record: VolumeRecord) -> float:
        """What is of the future was made by a clock that went wrong, and counts for nothing."""
        below = f"{org_of(self._store, record.app)}/{record.app}/{record.id}/"
        moments = [saved_at(each) or 0.0 for each in await self._kept.list(below)]
        now = self._clock.now()
        return max((at for at in moments if at <= now), default=record.created_at)

    async def _begin(self, record: VolumeRecord) -> bool:
        try:
            await self._backups.begin(record.app, record.id)
        except (Moved, MoveUnderWay, WrongState):
            return False  # a snapshot of it is being taken, say: the next look may find it free
        except (HawkerError, OSError) as error:
            self._again_at[record.id] = self._clock.monotonic() + RETRY_S
            _log.warning("a volume is not backed up", extra={"volume": record.id, "error": str(error)})
            return False
        self._again_at.pop(record.id, None)
        return True

    async def _prune(self) -> None:
        """Of all nodes with this place the first one does it, once a day."""
        settings, clock = self._settings, self._clock
        if clock.monotonic() < self._prune_at:
            return
        self._prune_at = clock.monotonic() + PRUNE_LOOK_S
        try:
            removed = await self._kept.prune(settings.backup_keep_daily, settings.backup_keep_weekly)
        except (HawkerError, OSError) as error:
            _log.warning("backups are not pruned", extra={"error": str(error)})
            return
        if removed:
            _log.info("backups removed", extra={"backups": removed})
