"""The node reads a share of what is kept of volumes on each day, and remembers what is known to be damaged.

Nothing of it is stored here: whose turn it is and what was found is written down where backups go, so it outlives this
daemon and is the same for all nodes. It comes after everything else: no more than one pack at a time, at a few MiB a
second, and hardly any while a volume is backed up or restored here.
"""

from collections.abc import Iterable

from hawker.clock import Clock
from hawker.errors import HawkerError, Unavailable
from hawker.fsm import journal
from hawker.log import bind
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.volume.disks import Backups
from hawker.volume.flows import VOLUME_BACKUP, VOLUME_FETCH, VOLUME_RESTORE

LOOKS = 60
"""The looks of the reconciler for one of the verification: it looks once an hour."""

LONGEST_REST_S = 60.0
_REST_S = 5.0
_BETTER = frozenset({VOLUME_BACKUP.name, VOLUME_FETCH.name, VOLUME_RESTORE.name})

_log = bind("hawker.keeper")


class BackupVerification:
    """`damaged` is what the last look knew."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, kept: Backups | None) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._kept = kept
        self._damaged: tuple[tuple[str, str], ...] = ()

    def damaged(self) -> Iterable[tuple[str, str]]:
        """ORG/APP/VOLUME/TIME of each backup, and what is wrong with it."""
        return self._damaged

    async def serve(self, every_s: float) -> None:
        """Nodes that were started together do not look at the same moment."""
        await self._clock.sleep(every_s * self._clock.random())
        while True:
            await self.once()
            await self._clock.sleep(every_s)

    async def once(self) -> None:
        assert self._kept is not None, "it serves only where backups go somewhere"
        try:
            report = await self._kept.verify(self._settings.backup_verify_percent, self._rest)
        except Unavailable as error:
            return _log.info("backups are not verified now", extra={"error": str(error)})
        except (HawkerError, OSError) as error:
            return _log.warning("backups are not verified", extra={"error": str(error)})
        if report is None:
            return None
        self._damaged = report.damaged
        for backup, wrong in report.found:
            _log.error("a backup is damaged", extra={"backup": backup, "damage": wrong})
        if report.parts:
            _log.info("backups verified", extra={"packs": report.packs, "read_bytes": report.read_bytes})

    async def _rest(self) -> None:
        """While there is something better to do, and for no longer than a minute: a node that always has something
        still comes to the end."""
        deadline = self._clock.monotonic() + LONGEST_REST_S
        while self._clock.monotonic() < deadline and self._is_busy():
            await self._clock.sleep(_REST_S)

    def _is_busy(self) -> bool:
        return any(run.flow in _BETTER for run in journal.open_runs(self._store))
