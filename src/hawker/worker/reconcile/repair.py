"""Mends findings, one at a time. Each repair looks again whether its finding still is one, does nothing when it is not,
and may come twice: what a live run is at meanwhile is left to the run.

A machine that has a record is changed in a transaction, by a run of its own, or in one go of the event loop after a
look at the record, so that no step of a run comes in between.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, assert_never

from hawker.errors import NotFound, WrongState
from hawker.fsm.contract import WhenBusy
from hawker.fsm.runner import Runner
from hawker.ids import Digest, MachineId, RunId
from hawker.log import bind
from hawker.machine import OFF, SETTLED, WITH_INSTANCE, State
from hawker.netpolicy.policies import PolicyEnforcer
from hawker.record.app import org_of
from hawker.record.machine import MACHINES, MachineRecord, machine_resource
from hawker.record.move import OPEN_MOVE_OF
from hawker.runtime.driver import ALIVE, Inspection, NodeDriver, Phase
from hawker.store.contract import Store, Tx
from hawker.worker.images import needed
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.host_adapters import Networks, Rootfs
from hawker.worker.lifecycle.pull import PULL, PullInput, image_resource
from hawker.worker.lifecycle.start import runs
from hawker.worker.lifecycle.stop import REST, STOP, Halt, Rest
from hawker.worker.reconcile import store_check
from hawker.worker.reconcile.detect import has_run
from hawker.worker.reconcile.findings import Finding, Kind
from hawker.worker.reconcile.volumes import VolumeRepairs
from hawker.worker.restored import InstanceAdoption
from hawker.worker.supervisor import ExitHandler
from hawker.worker.table import MachineTable

_log = bind("hawker.repair")


class Repairs:
    """`mend` raises what the host says; nothing is half-recorded."""

    def __init__(
        self,
        store: Store,
        table: MachineTable,
        driver: NodeDriver,
        rootfs: Rootfs | None,
        networks: Networks | None,
        enforcer: PolicyEnforcer,
        runner: Runner[Any],
        exits: ExitHandler,
        adoption: InstanceAdoption,
        volumes: VolumeRepairs,
    ) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._rootfs = rootfs
        self._networks = networks
        self._enforcer = enforcer
        self._runner = runner
        self._exits = exits
        self._adoption = adoption
        self._volumes = volumes

    async def mend(self, finding: Finding) -> None:
        await self._of(finding)()

    def _of(self, finding: Finding) -> Callable[[], Awaitable[None]]:
        about, machine_id = finding.about, MachineId(finding.about)
        match finding.kind:
            case Kind.STRAY_INSTANCE | Kind.FOREIGN_INSTANCE:
                return partial(self._end, machine_id)
            case Kind.STRAY_NETWORK | Kind.STRAY_INTERFACE:
                return partial(self._remove_network, finding)
            case Kind.STRAY_DIRECTORY | Kind.STRAY_MOUNT:
                return partial(self._remove_files, finding)
            case Kind.STRAY_RUN:
                return partial(self._abort, RunId(about))
            case Kind.FORSAKEN:
                return partial(self._write, partial(self._take_up, machine_id=machine_id))
            case Kind.LOST_INSTANCE:
                return partial(self._record_end, machine_id)
            case Kind.UNRECORDED_INSTANCE:
                return partial(self._adopt, machine_id)
            case Kind.LEFT_MOUNTED:
                return partial(self._write, partial(self._unmount, machine_id=machine_id))
            case Kind.LOST_ROOTFS | Kind.LOST_CGROUP | Kind.LOST_NETWORK | Kind.NOT_HELD | Kind.LEFT_HELD:
                return partial(self._give_back, finding.kind, machine_id)
            case Kind.LOST_RULES:
                return self._guard
            case Kind.LOST_POLICIES:
                return self._enforcer.renew
            case Kind.LOST_IMAGE:
                return partial(self._write, partial(self._pull, digest=Digest(about)))
            case Kind.WRONG_SUM | Kind.WRONG_INDEX:
                return partial(self._write, store_check.set_right)
            case Kind.LOST_RUNTIME_STATE | Kind.LATE_HISTORIES | Kind.WRONG_CLOCK | Kind.CATALOG_AGENT:
                return self._nothing
            case Kind.DAMAGED_BACKUP:
                return self._nothing
            case Kind.FULL_CONNECTIONS | Kind.EXPOSED_METADATA | Kind.NO_RESERVE | Kind.NO_MESH | Kind.SILENT_TUNNEL:
                return self._nothing
            case Kind.FOREIGN_VOLUME | Kind.LOST_VOLUME | Kind.HELD_VOLUME:
                return self._nothing
            case Kind.ENDING_CERTIFICATE | Kind.UNREACHED_API:
                return self._nothing
            case (
                Kind.STRAY_VOLUME
                | Kind.STRAY_VOLUME_MOUNT
                | Kind.WRONG_ATTACHMENT
                | Kind.FORSAKEN_VOLUME
                | Kind.VOLUME_LEFT_MOUNTED
                | Kind.LOST_VOLUME_MOUNT
            ):
                return self._volumes.of(finding)
            case _:
                assert_never(finding.kind)

    async def _nothing(self) -> None:
        """It is only told."""

    async def _write(self, apply: Callable[[Tx], None]) -> None:
        await self._store.write(apply)

    # What belongs to no machine.

    async def _end(self, machine_id: MachineId) -> None:
        """With all that it has. Of a machine that has a record only what nobody can talk to: another instance of it may
        be on its way."""
        if self._store.get(MACHINES, machine_id) is not None:
            return await self._driver.end_orphans(machine_id)
        await self._driver.destroy(machine_id)
        if self._networks is not None:
            await self._networks.delete(machine_id)
        if self._rootfs is not None:
            await self._rootfs.remove(machine_id)

    async def _remove_network(self, finding: Finding) -> None:
        assert self._networks is not None
        if finding.kind is Kind.STRAY_INTERFACE:
            await self._networks.unlink(finding.about)
        else:
            await self._networks.delete(MachineId(finding.about))

    async def _remove_files(self, finding: Finding) -> None:
        assert self._rootfs is not None
        if finding.kind is Kind.STRAY_MOUNT:
            await self._rootfs.clear(finding.about)
        else:
            await self._rootfs.remove(MachineId(finding.about))

    async def _abort(self, run_id: RunId) -> None:
        """Again next time, if an undo is stuck at what is not there."""
        try:
            await self._runner.abort(run_id)
        except (NotFound, WrongState):
            _log.info("the run has ended", extra={"run": run_id})

    # Machines that records and host disagree about.

    def _take_up(self, tx: Tx, machine_id: MachineId) -> None:
        record = tx.get(MACHINES, machine_id)
        if record is None or record.state in SETTLED or has_run(tx, machine_id):
            return
        flow = DESTROY if record.state is State.DESTROYING else STOP
        state = State.DESTROYING if record.state is State.DESTROYING else State.STOPPING
        self._table.change(tx, record, state=state, awaited=None)
        self._runner.accept(tx, flow, machine_resource(machine_id), Halt(signal="SIGKILL", timeout_s=0.0))

    async def _record_end(self, machine_id: MachineId) -> None:
        record = self._store.get(MACHINES, machine_id)
        if record is None or record.running is None or not self._runs_quietly(record):
            return
        if await self._exits.is_over(machine_id, record.running.instance_id):
            await self._exits.settle(machine_id, record.running.instance_id)

    async def _adopt(self, machine_id: MachineId) -> None:
        seen = await self._driver.inspect(machine_id)
        if seen.phase in ALIVE:
            await self._store.write(partial(self._take_in, machine_id=machine_id, seen=seen))

    def _take_in(self, tx: Tx, machine_id: MachineId, seen: Inspection) -> None:
        record = tx.get(MACHINES, machine_id)
        if record is not None and record.state in OFF and not runs(record) and not has_run(tx, machine_id):
            self._adoption.adopt(tx, record, seen)

    def _unmount(self, tx: Tx, machine_id: MachineId) -> None:
        """By a run: whatever is accepted for the machine meanwhile waits for its end."""
        record = tx.get(MACHINES, machine_id)
        if record is not None and record.state in OFF and not has_run(tx, machine_id):
            self._runner.accept(tx, REST, machine_resource(machine_id), Rest())

    # What a running machine has lost.

    async def _give_back(self, kind: Kind, machine_id: MachineId) -> None:
        seen = await self._driver.inspect(machine_id)
        record = self._store.get(MACHINES, machine_id)
        if record is None or not self._runs_quietly(record):
            return
        if kind is Kind.LEFT_HELD and record.state is State.STARTED:
            return await self._driver.resume(machine_id)
        if kind is Kind.LOST_NETWORK and seen.phase is Phase.SUSPENDED and seen.pid is None:
            return await self._plug_in_again(record)
        if seen.pid is None:
            return
        if kind is Kind.LOST_CGROUP:
            await self._driver.mend(machine_id)
        elif kind is Kind.NOT_HELD and record.state is State.SUSPENDED:
            await self._driver.suspend(machine_id)
        elif kind is Kind.LOST_ROOTFS and self._rootfs is not None:
            await self._rootfs.reveal(machine_id, seen.pid)
        elif kind is Kind.LOST_NETWORK and self._networks is not None:
            await self._networks.reconnect(machine_id, record.network, seen.pid)
            await self._enforcer.renew_for(record.app)  # its bridge may be a new one
            if self._store.get(MACHINES, machine_id) is None:  # destroyed meanwhile
                await self._networks.delete(machine_id)

    async def _plug_in_again(self, record: MachineRecord) -> None:
        """What no process holds any more: the network of a machine whose memory is in a file, after a reboot. One that
        is moving to another node is reached there next."""
        if self._networks is not None and self._store.get(OPEN_MOVE_OF, record.id) is None:
            await self._networks.ensure(record.id, record.network)
            await self._enforcer.renew_for(record.app)
            if self._store.get(MACHINES, record.id) is None:  # destroyed meanwhile
                await self._networks.delete(record.id)

    async def _guard(self) -> None:
        if self._networks is not None:
            await self._networks.guard()

    def _pull(self, tx: Tx, digest: Digest) -> None:
        """The shared run, if it is not under way."""
        for _, record in tx.scan(MACHINES):
            image = next((image for image in needed(record) if image.digest == digest), None)
            if image is not None:
                org = org_of(tx, record.app)
                wanted = PullInput(image=image, org=org)
                self._runner.accept(tx, PULL, image_resource(image, org), wanted, when_busy=WhenBusy.QUEUE)
                return

    def _runs_quietly(self, record: MachineRecord) -> bool:
        return record.state in WITH_INSTANCE and runs(record) and not has_run(self._store, record.id)
