"""Host against store, and store against itself: what is stray, lost or wrong, each a typed finding with its repair.

`look` finds and changes nothing, `repair` mends; here is who does so and when: the node at boot and every minute what
it may mend by itself, an operator what is asked for.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.containment import UNFORESEEN, contained
from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.runner import Runner
from hawker.history.archivist import history_resource
from hawker.ids import AppName, MachineId, VolumeId
from hawker.log import bind
from hawker.record.app import APPS
from hawker.record.deploy import DEPLOY_KIND
from hawker.record.machine import ARCHIVED, machine_resource
from hawker.record.move import INCOMING_KIND, SNAPSHOTS_KIND
from hawker.record.volume import GONE_VOLUMES, backup_resource, volume_resource
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.worker.lifecycle.host_adapters import Networks, Rootfs
from hawker.worker.lifecycle.pull import IMAGE
from hawker.worker.reconcile.detect import Look
from hawker.worker.reconcile.findings import Finding, Kind, Mender
from hawker.worker.reconcile.gone import GoneMachines, outlived
from hawker.worker.reconcile.repair import Repairs
from hawker.worker.table import MachineTable

_log = bind("hawker.reconcile")

_BY_NODE = frozenset({Mender.NODE})

__all__ = ["Finding", "Kind", "Mended", "Mender", "Reconciler"]


class Mended(ValueObject, frozen=True):
    """The result of a finding's repair. `error` when its repair failed; neither when it is not to be mended by who
    asked."""

    finding: Finding
    tried: bool
    """A repair was begun."""
    error: str | None = None


class Reconciler:
    """`find` only looks; `repair` mends one finding; `serve` does both at boot and again and again."""

    def __init__(
        self,
        store: Store,
        table: MachineTable,
        settings: Settings,
        clock: Clock,
        rootfs: Rootfs | None,
        networks: Networks | None,
        archive: Archive | None,
        runner: Runner[Any],
        look: Look,
        repairs: Repairs,
        gone: GoneMachines,
    ) -> None:
        self._store = store
        self._table = table
        self._rootfs = rootfs
        self._networks = networks
        self._settings = settings
        self._clock = clock
        self._archive = archive
        self._runner = runner
        self._look = look
        self._repairs = repairs
        self._gone = gone

    async def serve(self, every_s: float) -> None:
        while True:
            with contained("host and store are compared"):
                try:
                    await self.once()
                except (HawkerError, OSError) as error:
                    _log.error("cannot compare host and store", extra={"error": str(error)})
            await self._clock.sleep(every_s)

    async def once(self) -> list[Finding]:
        """Drop what is too old or too much to keep, then find and repair: what is dropped need not be compared, and a
        comparison that fails keeps nothing. A repair that fails is tried again next time."""
        with contained("what is too old is dropped"):
            try:
                await self._forget_gone()
            except (HawkerError, OSError) as error:
                _log.error("cannot forget destroyed machines", extra={"error": str(error)})
        mended = await self.mend(_BY_NODE)
        await self._tidy()
        return [each.finding for each in mended]

    async def find(self) -> list[Finding]:
        return await self._look.findings()

    async def mend(self, menders: frozenset[Mender]) -> list[Mended]:
        """Find, and repair what one of `menders` may."""
        return [await self._mend(finding, menders) for finding in await self.find()]

    async def repair(self, finding: Finding) -> None:
        """Repairs a finding. Raises what the host says; nothing is half-recorded."""
        await self._repairs.mend(finding)

    async def _mend(self, finding: Finding, menders: frozenset[Mender]) -> Mended:
        fields = {"kind": finding.kind.value, "about": finding.about, "detail": finding.detail}
        if finding.repair.by not in menders:
            _log.info("finding left alone", extra=fields)
            return Mended(finding, tried=False)
        _log.warning("finding", extra=fields)
        with contained("a repair", **fields):
            try:
                await self.repair(finding)
            except (HawkerError, OSError) as error:
                _log.error("repair failed", extra={**fields, "error": str(error)})
                return Mended(finding, tried=True, error=str(error))
            return Mended(finding, tried=True)
        return Mended(finding, tried=True, error=UNFORESEEN)

    async def _tidy(self) -> None:
        """Give back space: removed layers, unused bridges, volumes deleted and images pulled long ago."""
        sweeps: list[Callable[[], Awaitable[None]]] = []
        sweeps += [self._rootfs.sweep] if self._rootfs is not None else []
        sweeps += [self._networks.sweep] if self._networks is not None else []
        for sweep in sweeps:
            await sweep()
        await self._forget_volumes()
        for kind in (IMAGE, DEPLOY_KIND, INCOMING_KIND, SNAPSHOTS_KIND):
            await self._runner.prune(kind, self._settings.destroyed_kept_s)

    async def _forget_volumes(self) -> None:
        """Those whose file was removed long ago."""
        store, oldest = self._store, self._clock.now() - self._settings.destroyed_kept_s
        for _, record in list(store.scan(GONE_VOLUMES)):
            if record.updated_at < oldest:
                await store.write(partial(self._forget_volume, volume_id=record.id))

    def _forget_volume(self, tx: Tx, volume_id: VolumeId) -> None:
        tx.delete(GONE_VOLUMES, volume_id)
        self._runner.forget(tx, volume_resource(volume_id))
        self._runner.forget(tx, backup_resource(volume_id))

    async def _forget_gone(self) -> None:
        """Machines destroyed long ago, and the oldest beyond what is kept of an app."""
        store, gone = self._store, await self._gone.read(self._store)
        apps = frozenset(AppName(name) for name, _ in store.sizes(APPS))
        oldest = self._clock.now() - self._settings.destroyed_kept_s
        for machine_id in outlived(gone, apps, oldest, partial(self._is_kept_elsewhere, store)):
            resources = machine_resource(machine_id), history_resource(machine_id)
            if all(journal.active(store, each) is None for each in resources):  # the last word is spoken
                await store.write(partial(self._forget, machine_id=machine_id))

    def _is_kept_elsewhere(self, reader: Reader, machine_id: MachineId) -> bool:
        return self._archive is None or reader.get(ARCHIVED, machine_id) is not None

    def _forget(self, tx: Tx, machine_id: MachineId) -> None:
        self._table.forget(tx, machine_id)
        self._runner.forget(tx, machine_resource(machine_id))
        self._runner.forget(tx, history_resource(machine_id))
