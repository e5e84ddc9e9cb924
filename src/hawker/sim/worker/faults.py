"""Nature: ends workloads, sets clocks, breaks disks and drivers, and kills the daemon. At the end it rests."""

from collections.abc import Sequence

import anyio

from hawker.ids import MachineId
from hawker.runtime.fake_host import FakeFault
from hawker.runtime.spec import Ends
from hawker.sim.harness.plan import do_in_turn
from hawker.sim.harness.trace import Speaker
from hawker.sim.node.fake_host import FakeHostPart, FakeRegistry, ScriptedFailure
from hawker.sim.node.faulty_store import DiskFaults
from hawker.sim.node.world import SimWorld
from hawker.sim.worker.client import WorkerLedger
from hawker.sim.worker.plan import KILLS, WorkerOperation, WorkerVerb

_SLOW_COMMIT_S = 0.3
_KILLED = 128 + 9


class WorkerFaults:
    """`cause` is the operation that killed the current life, or will. `terminated` is set when the daemon is to stop,
    `counted` when it is to die after `turns_left` more turns of the loop."""

    def __init__(self, world: SimWorld, disk_faults: DiskFaults, registry: FakeRegistry, ledger: WorkerLedger) -> None:
        self._world = world
        self._disk_faults = disk_faults
        self._registry = registry
        self._ledger = ledger
        self.faults = 0
        self.cause: WorkerOperation | None = None
        self.turns_left = 0
        self.counted = anyio.Event()
        self.terminated = anyio.Event()

    async def rage(self, operations: Sequence[WorkerOperation]) -> None:
        await do_in_turn(operations, self._world.clock, self._strike)

    def rest(self) -> None:
        """Nothing goes wrong any more; what went wrong stays so."""
        self.cause = self._disk_faults.stops_in = self._world.crash_points.burns_at = None
        self.counted = anyio.Event()
        self._disk_faults.slow_until = self._disk_faults.full_until = self._disk_faults.failing_until = 0.0
        self._world.host.forgive()
        self._world.rootfs.troubles.clear()
        self._world.networks.troubles.clear()
        self._world.disks.troubles.clear()
        self._world.copies.troubles.clear()
        self._registry.fails, self._registry.pull_s = 0, 0.5

    def aftermath(self) -> WorkerOperation | None:
        """The operation that ended the life that is over; from now on none is under way."""
        cause, self.cause = self.cause, None
        self._disk_faults.stops_in = self._world.crash_points.burns_at = None
        self.terminated, self.counted = anyio.Event(), anyio.Event()
        return cause

    async def _strike(self, operation: WorkerOperation) -> None:
        if operation.verb in KILLS or operation.verb is WorkerVerb.TERMINATE:
            if self.cause is None:
                self._doom(operation)
            return
        text = self._blow(operation)
        if text:
            self.faults += 1
            self._ledger.say(Speaker.NATURE, text)

    def _doom(self, operation: WorkerOperation) -> None:
        """One at a time: what comes while another one is under way does nothing."""
        self.cause = operation
        match operation.verb:
            case WorkerVerb.KILL_AT_EDGE:
                self._world.crash_points.burns_at = self._world.crash_points.edges + int(operation.amount)
            case WorkerVerb.KILL_AT_COMMIT:
                self._disk_faults.stops_in = int(operation.amount)
            case WorkerVerb.KILL_AT_AWAIT:
                self.turns_left = int(operation.amount)
                self.counted.set()
            case _:
                self.terminated.set()

    def _blow(self, operation: WorkerOperation) -> str:
        match operation.verb:
            case WorkerVerb.END | WorkerVerb.STUBBORN | WorkerVerb.PANIC | WorkerVerb.SPOIL:
                return self._on_workload(operation)
            case WorkerVerb.CLOCK:
                self._world.clock.ahead_s += operation.amount
                self._ledger.promises.leases.clear()  # they may be over, and begin again
                return f"the clock jumps by {operation.amount:g} s"
            case WorkerVerb.DISK_FULL | WorkerVerb.DISK_SLOW | WorkerVerb.DISK_FAILING:
                return self._on_disk(operation)
            case WorkerVerb.DRIVER_ERROR | WorkerVerb.DRIVER_SLOW:
                return self._on_driver(operation)
            case WorkerVerb.HOST_ERROR:
                self._part_of(operation.word).troubles.append(ScriptedFailure(operation.word, bool(operation.amount)))
                return f"the next {operation.word} will fail{' after its effect' if operation.amount else ''}"
            case WorkerVerb.PULL_ERROR:
                self._registry.fails += int(operation.amount)
                return f"the next {operation.amount:g} pulls will fail"
            case _:
                assert operation.verb is WorkerVerb.PULL_SLOW, operation.verb
                self._registry.pull_s = operation.amount
                return f"pulls take {operation.amount:g} s"

    def _part_of(self, call: str) -> FakeHostPart:
        if call in ("make", "grow", "attach", "detach"):
            return self._world.disks
        if call in ("take", "restore", "fork"):
            return self._world.copies
        return self._world.rootfs if call in ("mount", "unmount") else self._world.networks

    def _on_workload(self, operation: WorkerOperation) -> str:
        machine_id = self._ledger.machines.get(operation.label)
        if machine_id is None or machine_id not in self._world.host.running():
            return ""
        host = self._world.host
        if operation.verb is WorkerVerb.STUBBORN:
            host.stubborn.add(machine_id)
            return f"{operation.label} ignores signals from now on"
        if operation.verb is WorkerVerb.SPOIL:
            host.spoilt |= {machine_id} & host.memories
            return f"the snapshot of {operation.label} is spoilt" if machine_id in host.spoilt else ""
        if operation.verb is WorkerVerb.PANIC:
            host.end(machine_id, _KILLED, signal=9, fault="kernel panic: not syncing")
            return f"the kernel of {operation.label} panics"
        return self._end(operation, machine_id)

    def _end(self, operation: WorkerOperation, machine_id: MachineId) -> str:
        """Ends the first running container of a machine with containers, or the whole machine when none runs."""
        instance = self._world.host.look(machine_id)
        running = [] if instance is None or instance.spec.ends is Ends.FIRST else instance.running
        if running:
            self._world.host.end_process(machine_id, running[0].index, int(operation.amount))
            return f"container {running[0].spec.name} of {operation.label} ends with {operation.amount:g}"
        self._world.host.end(machine_id, int(operation.amount))
        return f"the workload of {operation.label} ends with {operation.amount:g}"

    def _on_disk(self, operation: WorkerOperation) -> str:
        until = self._world.clock.monotonic() + operation.amount
        match operation.verb:
            case WorkerVerb.DISK_FULL:
                self._disk_faults.full_until = until
                return f"the disk is full for {operation.amount:g} s"
            case WorkerVerb.DISK_SLOW:
                self._disk_faults.slow_until, self._disk_faults.delay_s = until, _SLOW_COMMIT_S
                return f"the disk is slow for {operation.amount:g} s"
            case _:
                self._disk_faults.failing_until = until
                return f"the disk fails now and then for {operation.amount:g} s"

    def _on_driver(self, operation: WorkerOperation) -> str:
        if operation.verb is WorkerVerb.DRIVER_SLOW:
            self._world.host.script(operation.word, FakeFault(delay_s=operation.amount))
            return f"the driver's next {operation.word} takes {operation.amount:g} s"
        error, after = OSError(f"{operation.word} failed"), bool(operation.amount)
        self._world.host.script(operation.word, FakeFault(error=error, after=after))
        return f"the driver's next {operation.word} will fail{' after its effect' if after else ''}"
