"""Suspending a machine into a snapshot, and going on from it, so that a death of the daemon at any point leaves it
either running or suspended, never both, never lost.

The record of a snapshot is the truth. It is made once the memory is on the disk, and removed before the guest goes on;
a VMM that still runs while it is there is a leftover, and ended. A guest that is held still without one, because a
daemon died in between, is let go by the next: what tells of it is a directory of a snapshot without a record.
"""

import signal

import anyio
import anyio.to_thread

from hawker.clock import Clock
from hawker.errors import NotServed, SnapshotLost, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.host.vmm_user import user_of
from hawker.log import bind
from hawker.runtime import microvm_snapshot
from hawker.runtime.driver import Exit
from hawker.runtime.microvm_launch import MicroVMLauncher, read_plan
from hawker.runtime.microvm_memory import MicroVMMemory
from hawker.runtime.microvm_snapshot import SAVED, MicroVMSnapshot
from hawker.runtime.pilot import requests
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.link import ANSWER_TIMEOUT_S
from hawker.runtime.pilot.rundir import RunDir, spec_of
from hawker.runtime.vmm.contract import Jail, Restored, Vm, Vmm

_log = bind("hawker.microvm")
_LEAVES_S = 5.0  # for a VMM to end itself
_MIB = 1 << 20


class SnapshotSuspension:
    """Remembers nothing."""

    def __init__(
        self,
        vmm: Vmm,
        jail: Jail,
        channel: PilotChannel,
        launcher: MicroVMLauncher,
        memory: MicroVMMemory,
        clock: Clock,
    ) -> None:
        self._vmm = vmm
        self._jail = jail
        self._channel = channel
        self._launcher = launcher
        self._memory = memory
        self._clock = clock

    async def suspend(self, run: RunDir) -> None:
        if not self._vmm.snapshots:
            raise NotServed(f"the {self._vmm.name} driver cannot suspend")
        if not run.saved():
            await self._save(run)
            inside("published")
        await self._leave(run)

    async def resume(self, run: RunDir) -> None:
        if not run.saved():
            await self.let_go(run)
            return
        await self._leave(run)
        try:
            await self._restore(run)
        except SnapshotLost as lost:
            run.write_exit(_lost(str(lost), self._clock.now()))  # before anybody who waits for its end can judge it
            with anyio.CancelScope(shield=True):
                await self.give_up(run)
            raise
        inside("forgotten")
        await self._go_on(run)

    async def let_go(self, run: RunDir) -> None:
        """A guest that was held still, and whose daemon died before it was suspended or after it was resumed."""
        if run.alive() and not run.saved() and microvm_snapshot.saved_directory(run).exists():
            await self._go_on(run)

    async def give_up(self, run: RunDir) -> None:
        """End what runs, then its snapshot: the other way round it would run, as nobody knows what."""
        await self._jail.kill(run.machine_id, run, None)
        microvm_snapshot.forget(run)
        await anyio.to_thread.run_sync(microvm_snapshot.drop_files, run)

    async def _save(self, run: RunDir) -> None:
        plan, program = read_plan(run), await self._vmm.version()
        available_mib = await self._available_mib(run)
        microvm_snapshot.make_room(run, user_of(run.machine_id))
        try:
            await self._vmm.save(plan.vm, run, _inside(plan.vm))
            inside("saved")
            files = await anyio.to_thread.run_sync(microvm_snapshot.describe, run)
            snapshot = MicroVMSnapshot(program=program, plan=plan, files=files, available_mib=available_mib)
            await anyio.to_thread.run_sync(microvm_snapshot.publish, run, snapshot)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                microvm_snapshot.forget(run)
                await self._go_on(run)
            if isinstance(error, (SnapshotLost, OSError)):
                text = f"the memory of machine {run.machine_id} could not be kept, and it goes on: {error}"
                raise Unavailable(text) from error
            raise

    async def _leave(self, run: RunDir) -> None:
        """No process of a suspended machine is left, and no control group."""
        if run.alive():
            with anyio.move_on_after(_LEAVES_S):
                await self._vmm.end(run)
        await self._jail.kill(run.machine_id, run, None)
        await self._jail.clear(run.machine_id, run)

    async def _restore(self, run: RunDir) -> None:
        """Until the guest could go on. Whatever raises but `SnapshotLost` leaves it suspended."""
        spec, snapshot = spec_of(run), microvm_snapshot.read(run)
        program = await self._vmm.version()
        await anyio.to_thread.run_sync(microvm_snapshot.refuse_unusable, run, snapshot, program)
        vm = snapshot.plan.vm
        with self._channel.files(run, spec, resumed=True) as fds:
            if len(fds) != vm.fds:
                raise SnapshotLost("the machine's snapshot was made by a version of hawker with other devices")
            restored = Restored(directory=_inside(vm), program=snapshot.program)
            pid = await self._launcher.run(spec, run, snapshot.plan, fds, restored)
            inside("restored")
            run.write_pid(pid)
        await anyio.to_thread.run_sync(microvm_snapshot.forget, run)

    async def _go_on(self, run: RunDir) -> None:
        """The pilot's answer and the clock come right after the guest's first moment. One that does not take the time
        has the wrong one, and goes on."""
        await self._vmm.proceed(run)
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                async with self._channel.connect(run) as pilot:
                    await pilot.hello()
                    await requests.set_clock(pilot, self._clock.now())
        except (TimeoutError, Unavailable, WrongState) as error:
            _log.warning("clock not set", extra={"machine_id": run.machine_id, "reason": str(error)})
        await anyio.to_thread.run_sync(microvm_snapshot.drop_files, run)

    async def _available_mib(self, run: RunDir) -> int:
        """A guest that does not say can be suspended all the same."""
        try:
            return min(spec_of(run).limits.memory_mib, (await self._memory.ask(run)).available // _MIB)
        except Unavailable:
            return 0


def _lost(why: str, at: float) -> Exit:
    return Exit(exit_code=128 + signal.SIGKILL, signal=signal.SIGKILL, exited_at=at, fault=why)


def refuse_suspended(run: RunDir) -> None:
    """Raises `WrongState` for a machine in a snapshot."""
    if run.saved():
        raise WrongState(f"machine {run.machine_id} is suspended")


def _inside(vm: Vm) -> str:
    return f"{vm.directory}/{SAVED}"
