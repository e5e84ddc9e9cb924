"""The half of a driver that all technologies share: a machine's life with a pilot in it.

Nothing is remembered between calls: what is so is read from the run directory, its lock and the pilot, so a call from
a daemon that has just begun is like any other.
"""

import anyio
import msgspec

from hawker.errors import NotServed, SnapshotLost, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.ids import MachineId
from hawker.runtime.driver import ExecSession, ExecSpec, Inspection, Memory, OutputChunk, Phase, ProcessInfo, Stats
from hawker.runtime.pilot import messages, requests
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.endings import Endings
from hawker.runtime.pilot.processes import refuse_older
from hawker.runtime.pilot.reach import ANSWER_TIMEOUT_S, BOOT_TIMEOUT_S, START_TIMEOUT_S
from hawker.runtime.pilot.requests import StartAnswer
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.session import PilotSession
from hawker.runtime.spec import InstanceSpec
from hawker.runtime.spec_rules import process_of, refuse_containers

_LAST_WORDS_S = 20.0  # for a guest to end whose pilot says that it does, or says no more


class PilotDriver(Endings):
    """Keeps `Driver` for one technology. A machine's files are in `machines`/<machine id>/run."""

    async def check(self) -> None:
        await self._technology.check()

    # --- to running

    async def prepare(self, spec: InstanceSpec) -> None:
        run = self._run(spec.machine_id)
        self._refuse_unserved(spec)
        before = run.spec()
        if before is not None and before.instance_id == spec.instance_id:
            return
        if before is not None and run.lives():
            raise WrongState(f"machine {spec.machine_id} still has a running instance, {before.instance_id}")
        await self._give_back(spec.machine_id, loose=not run.journal.exists())
        run.path.mkdir(mode=0o700, parents=True)
        await self._technology.lay_out(spec, run)
        inside("laid_out")
        run.write_spec(spec)

    async def start(self, spec: InstanceSpec) -> Inspection:
        await self.prepare(spec)
        run = self._run(spec.machine_id)
        try:
            if await self._begin(run, spec) is StartAnswer.ENDED:
                await self._last_words(run, spec)
        except TimeoutError:
            if not self.features.kernel:
                raise
            await self._give_up(spec.machine_id, run, f"no word from the guest within {BOOT_TIMEOUT_S:g} s")
        return await self.inspect(spec.machine_id)

    async def _begin(self, run: RunDir, spec: InstanceSpec) -> StartAnswer:
        if run.lives():
            self._refuse_suspended(run)
            return await self._begin_again(run, spec)
        if self._has_ended(run, self._story(run)):
            return StartAnswer.ENDED
        return await self._launch(run, spec)

    async def _launch(self, run: RunDir, spec: InstanceSpec) -> StartAnswer:
        """The spec is on its way before the pilot exists: it waits in the socket, so nobody waits for anybody."""
        with self._channel.files(run, spec) as fds:
            pilot = self._channel.connect(run)
            try:
                if not self.features.kernel:
                    requests.send_spec(pilot, self._encode(spec))
                pid = await self._technology.launch(spec, run, fds)
                inside("spawned")
                run.write_pid(pid)
            except BaseException:
                pilot.close()
                raise
        async with pilot:
            return await (self._boot(pilot, spec) if self.features.kernel else _started(pilot, spec))

    async def _boot(self, pilot: Connection, spec: InstanceSpec) -> StartAnswer:
        """A guest is told only once it is there: its clock is set by the spec."""
        with anyio.fail_after(BOOT_TIMEOUT_S):
            try:
                await pilot.hello()
            except Unavailable:
                return StartAnswer.ENDED
            requests.send_spec(pilot, self._encode(spec))
            return await requests.started(pilot, spec.instance_id)

    async def _begin_again(self, run: RunDir, spec: InstanceSpec) -> StartAnswer:
        """A pilot runs: an earlier call was cut short, or this one comes twice. It knows its spec again."""
        try:
            async with self._channel.connect(run) as pilot:
                requests.send_spec(pilot, self._encode(spec))
                return await _started(pilot, spec)
        except Unavailable:
            return StartAnswer.ENDED

    async def _last_words(self, run: RunDir, spec: InstanceSpec) -> None:
        """Only a guest, which may say anything, says that it ends and does not; and a VMM may end before its guest is
        there."""
        if not self.features.kernel:
            await self.wait(spec.machine_id)
            return
        with anyio.move_on_after(_LAST_WORDS_S):
            await self._gone(run)
        story = self._story(run)
        if run.lives() and story.final_exit is None:
            await self._give_up(spec.machine_id, run, "the guest's pilot broke off, and the guest did not end")
        elif run.lives():
            await self._technology.kill(spec.machine_id, run, run.pid())
        elif not self._has_ended(run, story):
            raise Unavailable(f"the VMM of machine {spec.machine_id} was ended before its guest was there")

    # --- what is so

    async def recover(self, machine_id: MachineId) -> Inspection:
        return await self.inspect(machine_id)

    async def inspect(self, machine_id: MachineId) -> Inspection:
        run = self._run(machine_id)
        spec = run.spec()
        if spec is None:
            return Inspection(phase=Phase.ABSENT)
        lives, story = run.lives(), self._story(run)
        if not lives and self._has_ended(run, story):
            exit = await self._settle(machine_id, run)
            return Inspection(phase=Phase.EXITED, instance_id=spec.instance_id, started_at=story.ready_at, exit=exit)
        if not lives or story.ready_at is None:
            return Inspection(phase=Phase.PREPARED, instance_id=spec.instance_id)
        phase = Phase.SUSPENDED if self._technology.is_suspended(run) else Phase.RUNNING
        pid = await self._pid(run) if run.alive() else None
        return Inspection(phase=phase, instance_id=spec.instance_id, pid=pid, started_at=story.ready_at)

    async def stats(self, machine_id: MachineId) -> Stats:
        run = self._running(machine_id)
        pid = await self._pid(run)
        if pid is None:
            raise WrongState(f"machine {machine_id} is not running")
        return self._technology.stats(run, pid)

    async def memory(self, machine_id: MachineId) -> Memory:
        return await self._technology.memory(self._living(machine_id))

    async def limit_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        """Where the spec is, the limit is found again by `mend`."""
        run = self._living(machine_id)
        spec = run.spec()
        assert spec is not None, "a living machine has a spec"
        limits = msgspec.structs.replace(spec.limits, memory_mib=limit_mib)
        await self._technology.limit_memory(run, limits)
        run.write_spec(msgspec.structs.replace(spec, limits=limits))
        inside("limited")

    async def reclaim_memory(self, machine_id: MachineId, amount_mib: int) -> int:
        return await self._technology.reclaim_memory(self._living(machine_id), amount_mib)

    async def processes(self, machine_id: MachineId) -> tuple[ProcessInfo, ...]:
        async with self._pilot(machine_id) as pilot:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                return await requests.list_processes(pilot)

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        return self._channel.output(self._run(machine_id), after=after, tail=tail)

    # --- to a running machine

    async def suspend(self, machine_id: MachineId) -> None:
        run = self._living(machine_id)
        await self._pid(run)  # a frozen pilot could not be asked who it is
        await self._technology.suspend(run)
        inside("frozen")

    async def resume(self, machine_id: MachineId) -> None:
        run = self._living(machine_id)
        try:
            await self._technology.resume(run)
        except SnapshotLost as lost:
            await self._give_up(machine_id, run, str(lost))
            raise
        inside("thawed")

    async def signal(self, machine_id: MachineId, signal: int) -> None:
        async with self._pilot(machine_id) as pilot:
            requests.send_signal(pilot, signal)

    async def exec(self, machine_id: MachineId, spec: ExecSpec) -> ExecSession:
        run = self._running(machine_id)
        instance = run.spec()
        if instance is not None:
            process_of(instance, spec.process)
        pilot = await self._greeted(run)
        try:
            if spec.process:
                refuse_older(pilot, machine_id)
            return PilotSession(pilot, spec)
        except BaseException:
            pilot.close()
            raise

    def _refuse_unserved(self, spec: InstanceSpec) -> None:
        if spec.files and not self.features.rootfs:
            raise NotServed(f"the {self.name} driver cannot serve `files`: its machines have no root filesystem")
        refuse_containers(spec, self.name, self.features)
        self._encode(spec)

    def _encode(self, spec: InstanceSpec) -> bytes:
        return messages.run_spec(spec, contained=self._technology.contained, now=self._clock.now())


async def _started(pilot: Connection, spec: InstanceSpec) -> StartAnswer:
    with anyio.fail_after(START_TIMEOUT_S):
        return await requests.started(pilot, spec.instance_id)
