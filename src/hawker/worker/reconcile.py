"""Host against store: what is on the host and belongs to no machine, and what a record promises that nothing is doing.

The host is listed before the records are read. A record is written before anything of its machine is made on the host
and removed after everything is gone, so what was listed and has no record is stray; repairing it twice does no harm.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import assert_never

from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.runner import Runner
from hawker.ids import MachineId
from hawker.log import bind
from hawker.machine import SETTLED, State
from hawker.store.contract import Reader, Tx
from hawker.worker.lifecycle.deps import Deps, machine_resource
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.stop import STOP, Halt
from hawker.worker.records import DESTROYED, MACHINES

_log = bind("hawker.reconcile")


class Kind(StrEnum):
    """What can be wrong, each with its repair."""

    STRAY_INSTANCE = "stray instance"  # ended and removed
    STRAY_NETWORK = "stray network"  # removed
    STRAY_DIRECTORY = "stray directory"  # unmounted and removed
    FORSAKEN = "forsaken machine"  # in a transient state, and no run is at it: stopped, or destroyed if it was to be


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    machine_id: MachineId


class Reconciler:
    """`find` only looks; `repair` mends one finding; `serve` does both at boot and again and again."""

    def __init__(self, deps: Deps, runner: Runner[Deps]) -> None:
        self._deps = deps
        self._runner = runner

    async def serve(self, every_s: float) -> None:
        while True:
            try:
                await self.once()
            except (HawkerError, OSError) as error:
                _log.error("cannot compare host and store", extra={"error": str(error)})
            await self._deps.clock.sleep(every_s)

    async def once(self) -> list[Finding]:
        """Find and repair, then drop what is too old to keep. A repair that fails is tried again next time."""
        findings = await self.find()
        for finding in findings:
            _log.warning("finding", extra={"kind": finding.kind.value, "machine": finding.machine_id})
            try:
                await self.repair(finding)
            except (HawkerError, OSError) as error:
                _log.error("repair failed", extra={"machine": finding.machine_id, "error": str(error)})
        await self._tidy()
        return findings

    async def find(self) -> list[Finding]:
        deps = self._deps
        seen = [(Kind.STRAY_INSTANCE, machine_id) for machine_id in await deps.driver.list()]
        if deps.networks is not None:
            seen += [(Kind.STRAY_NETWORK, machine_id) for machine_id in await deps.networks.list()]
        if deps.rootfs is not None:
            seen += [(Kind.STRAY_DIRECTORY, machine_id) for machine_id in await deps.rootfs.list()]
        known = {key for key, _ in deps.store.scan(MACHINES)}
        return [Finding(kind, machine_id) for kind, machine_id in seen if machine_id not in known] + self._forsaken()

    async def repair(self, finding: Finding) -> None:
        """Raises what the host says; nothing is half-recorded."""
        deps, machine_id = self._deps, finding.machine_id
        match finding.kind:
            case Kind.STRAY_INSTANCE:
                await deps.driver.destroy(machine_id)
            case Kind.STRAY_NETWORK:
                assert deps.networks is not None
                await deps.networks.delete(machine_id)
            case Kind.STRAY_DIRECTORY:
                assert deps.rootfs is not None
                await deps.rootfs.remove(machine_id)
            case Kind.FORSAKEN:
                await deps.store.write(lambda tx: self._take_up(tx, machine_id))
            case _:
                assert_never(finding.kind)

    def _forsaken(self) -> list[Finding]:
        with self._deps.store.snapshot() as reader:
            transient = [record for _, record in reader.scan(MACHINES) if record.state not in SETTLED]
            return [Finding(Kind.FORSAKEN, record.id) for record in transient if not _has_run(reader, record.id)]

    def _take_up(self, tx: Tx, machine_id: MachineId) -> None:
        record = tx.get(MACHINES, machine_id)
        if record is None or record.state in SETTLED or _has_run(tx, machine_id):
            return
        flow = DESTROY if record.state is State.DESTROYING else STOP
        state = State.DESTROYING if record.state is State.DESTROYING else State.STOPPING
        self._deps.table.change(tx, record, state=state, awaited=None)
        self._runner.accept(tx, flow, machine_resource(machine_id), Halt(signal="SIGKILL", timeout_s=0.0))

    async def _tidy(self) -> None:
        """Give back space: removed layers, unused bridges, machines destroyed long ago."""
        deps = self._deps
        sweeps: list[Callable[[], Awaitable[None]]] = []
        sweeps += [deps.rootfs.sweep] if deps.rootfs is not None else []
        sweeps += [deps.networks.sweep] if deps.networks is not None else []
        for sweep in sweeps:
            await sweep()
        oldest = deps.clock.now() - deps.settings.destroyed_kept_s
        old = [record.id for _, record in deps.store.scan(DESTROYED) if record.updated_at < oldest]
        for machine_id in old:
            await deps.store.write(partial(self._forget, machine_id=machine_id))

    def _forget(self, tx: Tx, machine_id: MachineId) -> None:
        self._deps.table.forget(tx, machine_id)
        self._runner.forget(tx, machine_resource(machine_id))


def _has_run(reader: Reader, machine_id: MachineId) -> bool:
    """Also one that is not due yet: a machine between two tries is not forsaken."""
    return next(journal.newest(reader, machine_resource(machine_id), opened=True), None) is not None
