"""The driver that all technologies share: a machine's life with a pilot in it.

Nothing is remembered between calls: what is so is read from the run directory, its lock and the pilot, so a call from
a daemon that has just begun is like any other. `PilotDriver` holds one part for each concern and delegates to it.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import NotServed, SnapshotLost, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.ids import MachineId
from hawker.runtime.driver import (
    ExecSession,
    ExecSpec,
    Exit,
    Features,
    Inspection,
    LostPart,
    Memory,
    OutputChunk,
    Phase,
    ProcessInfo,
    ProcessState,
    Stats,
    process_of,
    refuse_containers,
)
from hawker.runtime.pilot import messages, requests
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.exit import ExitJournal
from hawker.runtime.pilot.file_copies import FileNotCopied, copy_files, held_for_files, sources_of, waiting_for_files
from hawker.runtime.pilot.inventory import Inventory
from hawker.runtime.pilot.link import ANSWER_TIMEOUT_S, PilotLink
from hawker.runtime.pilot.processes import START_TIMEOUT_S, Processes, refuse_older
from hawker.runtime.pilot.requests import PilotStartAnswer
from hawker.runtime.pilot.rundir import MachineFiles, RunDir, spec_of
from hawker.runtime.pilot.session import PilotSession
from hawker.runtime.pilot.technology import Technology
from hawker.runtime.spec import Ends, FileSpec, InstanceSpec

BOOT_TIMEOUT_S = 45.0  # for a guest to boot and have its spec running: emulated, on a busy host, it takes 10
ATTACH_VERSION = COPY_VERSION = 4  # of the protocol that speaks of them
REST_S = 2.0  # what a pilot gives the processes that are left when its machine ends
STOP_GRACE_S = 5.0  # beyond the stop's own timeout, for the pilot to bury and record
_ASK_AGAIN_S = 0.2
_BOOTS = 4  # of a guest that wants to be started again, until the caller is told
_LAST_WORDS_S = 20.0  # for a guest to end whose pilot says that it does, or says no more


class PilotDriver:
    """Keeps `Driver` and `HostView` for one technology. A machine's files are in `machines`/<machine id>/run. `trash`
    is where they go when nobody needs them any more, on the same file system, for somebody else to remove; without one
    they are removed at once."""

    def __init__(
        self,
        technology: Technology,
        machines: Path,
        clock: Clock,
        *,
        stop_grace_s: float = STOP_GRACE_S,
        trash: Path | None = None,
    ) -> None:
        self.name: str = technology.name
        self.features: Features = technology.features
        self._technology = technology
        self._clock = clock
        self._stop_grace_s = stop_grace_s
        self._trash = trash
        self._files = MachineFiles(machines)
        self._link = PilotLink(technology, self._files, clock)
        self._journal = ExitJournal(technology, clock)
        self._processes = Processes(self._files, self._link, self._journal)
        self._inventory = Inventory(technology, self._files, self._link)

    async def check(self) -> None:
        await self._technology.check()

    # --- to running

    async def prepare(self, spec: InstanceSpec) -> None:
        await self._prepare(held_for_files(spec))

    async def _prepare(self, spec: InstanceSpec) -> None:
        run = self._files.run(spec.machine_id)
        before = run.spec()
        if before is not None and before.instance_id == spec.instance_id:
            return
        self._refuse_unserved(spec)
        if before is not None and run.lives():
            raise WrongState(f"machine {spec.machine_id} still has a running instance, {before.instance_id}")
        await self._give_back(spec.machine_id, orphans=not run.journal.exists())
        run.path.mkdir(mode=0o700, parents=True)
        await self._technology.lay_out(spec, run)
        inside("laid_out")
        run.write_spec(spec)

    async def start(self, spec: InstanceSpec) -> Inspection:
        waiting, spec = waiting_for_files(spec), held_for_files(spec)
        await self._prepare(spec)
        run = self._files.run(spec.machine_id)
        try:
            answer = await self._begin(run, spec)
            if answer is PilotStartAnswer.READY and waiting:
                answer = await self._begin_with_files(run, spec, waiting)
            if answer is PilotStartAnswer.ENDED:
                await self._last_words(run, spec)
        except TimeoutError:
            if not self.features.kernel:
                raise
            await self._journal.give_up(run, f"no word from the guest within {BOOT_TIMEOUT_S:g} s")
        return await self.inspect(spec.machine_id)

    async def _begin(self, run: RunDir, spec: InstanceSpec) -> PilotStartAnswer:
        if run.lives():
            self._link.refuse_suspended(run)
            return await self._begin_again(run, spec)
        if self._journal.has_ended(run, self._journal.read(run)):
            return PilotStartAnswer.ENDED
        for _ in range(_BOOTS - 1):
            answer = await self._launch(run, spec)
            if answer is not PilotStartAnswer.ENDED or not await self._starts_again(run):
                return answer
        return await self._launch(run, spec)

    async def _starts_again(self, run: RunDir) -> bool:
        if not self.features.kernel:
            return False
        with anyio.move_on_after(_LAST_WORDS_S):
            await self._link.wait_ended(run)
        return not run.lives() and self._technology.starts_again(run)

    async def _launch(self, run: RunDir, spec: InstanceSpec) -> PilotStartAnswer:
        """The spec is on its way before the pilot exists: it waits in the socket, so nobody waits for anybody."""
        with self._technology.channel.files(run, spec) as fds:
            pilot = self._link.connect(run)
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

    async def _begin_with_files(self, run: RunDir, spec: InstanceSpec, waiting: Sequence[int]) -> PilotStartAnswer:
        """Where one of the processes has begun, an earlier call had copied all the machine's files."""
        states = await self._processes.states(spec.machine_id)
        begun = any(states[index].run for index in waiting)
        if not begun and not await self._copy_files(run, spec.files, 0):
            return PilotStartAnswer.READY
        for index in waiting:
            try:
                await self.start_process(spec.machine_id, index, 1)
            except WrongState:
                states = await self._processes.states(spec.machine_id)
                if spec.ends is not Ends.TOLD and any(state.exit for state in states):  # one's end is the machine's
                    return PilotStartAnswer.ENDED
                raise
        return PilotStartAnswer.READY

    async def _copy_files(self, run: RunDir, files: tuple[FileSpec, ...], process: int) -> bool:
        """Whether they are there now: else the instance was ended, and its exit says why."""

        async def begin(copy: ExecSpec) -> ExecSession:
            return await self.exec(run.machine_id, copy)

        try:
            await copy_files(files, process, begin)
        except (FileNotCopied, OSError) as error:
            await self._journal.refuse(run, f"cannot write a file into the machine: {error}")
            return False
        return True

    async def _boot(self, pilot: Connection, spec: InstanceSpec) -> PilotStartAnswer:
        """A guest is told only once it is there: its clock is set by the spec."""
        with anyio.fail_after(BOOT_TIMEOUT_S):
            try:
                await pilot.hello()
            except Unavailable:
                return PilotStartAnswer.ENDED
            requests.send_spec(pilot, self._encode(spec))
            return await requests.started(pilot, spec.instance_id)

    async def _begin_again(self, run: RunDir, spec: InstanceSpec) -> PilotStartAnswer:
        """A pilot runs: an earlier call was cut short, or this one comes twice. It knows its spec again."""
        try:
            async with self._link.connect(run) as pilot:
                requests.send_spec(pilot, self._encode(spec))
                return await _started(pilot, spec)
        except Unavailable:
            return PilotStartAnswer.ENDED

    async def _last_words(self, run: RunDir, spec: InstanceSpec) -> None:
        """Only a guest, which may say anything, says that it ends and does not; and a VMM may end before its guest is
        there."""
        if not self.features.kernel:
            await self.wait(spec.machine_id)
            return
        with anyio.move_on_after(_LAST_WORDS_S):
            await self._link.wait_ended(run)
        state = self._journal.read(run)
        if run.lives() and state.final_exit is None:
            await self._journal.give_up(run, "the guest's pilot broke off, and the guest did not end")
        elif run.lives():
            await self._technology.kill(spec.machine_id, run, run.pid())
        elif not self._journal.has_ended(run, state):
            words = self._technology.last_words(run)
            raise Unavailable(f"the VMM of machine {spec.machine_id} was ended before its guest was there: {words}")

    # --- what is so

    async def recover(self, machine_id: MachineId) -> Inspection:
        with suppress(Unavailable):
            await self._technology.take_up(self._files.run(machine_id))
        return await self.inspect(machine_id)

    async def inspect(self, machine_id: MachineId) -> Inspection:
        run = self._files.run(machine_id)
        spec = run.spec()
        if spec is None:
            return Inspection(phase=Phase.ABSENT)
        alive = run.alive()
        lives, state = alive or run.saved(), self._journal.read(run)
        if not lives and self._journal.has_ended(run, state):
            exit = await self._journal.settle(run)
            return Inspection(phase=Phase.EXITED, instance_id=spec.instance_id, started_at=state.ready_at, exit=exit)
        if not lives or state.ready_at is None:
            return Inspection(phase=Phase.PREPARED, instance_id=spec.instance_id)
        phase = Phase.SUSPENDED if self._technology.is_suspended(run) else Phase.RUNNING
        pid = await self._link.pid(run) if alive else None
        return Inspection(phase=phase, instance_id=spec.instance_id, pid=pid, started_at=state.ready_at)

    async def stats(self, machine_id: MachineId) -> Stats:
        run = self._link.running(machine_id)
        pid = await self._link.pid(run)
        if pid is None:
            raise WrongState(f"machine {machine_id} is not running")
        return self._technology.stats(run, pid)

    async def memory(self, machine_id: MachineId) -> Memory:
        return await self._technology.memory(self._files.living(machine_id))

    async def limit_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        """The limit is kept in the spec, where `mend` finds it again."""
        run = self._files.living(machine_id)
        spec = run.spec()
        assert spec is not None, "a living machine has a spec"
        limits = msgspec.structs.replace(spec.limits, memory_mib=limit_mib)
        await self._technology.limit_memory(run, limits)
        run.write_spec(msgspec.structs.replace(spec, limits=limits))
        inside("limited")

    async def reclaim_memory(self, machine_id: MachineId, amount_mib: int) -> int:
        return await self._technology.reclaim_memory(self._files.living(machine_id), amount_mib)

    async def processes(self, machine_id: MachineId) -> tuple[ProcessInfo, ...]:
        async with self._link.open(machine_id) as pilot:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                return await requests.list_processes(pilot)

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        return self._technology.channel.output(self._files.run(machine_id), after=after, tail=tail)

    # --- to a running machine

    async def suspend(self, machine_id: MachineId) -> None:
        run = self._files.living(machine_id)
        await self._link.pid(run)  # a frozen pilot could not be asked who it is
        await self._technology.suspend(run)
        inside("frozen")

    async def resume(self, machine_id: MachineId) -> None:
        run = self._files.living(machine_id)
        try:
            await self._technology.resume(run)
        except SnapshotLost as lost:
            await self._journal.give_up(run, str(lost))
            raise
        inside("thawed")

    async def signal(self, machine_id: MachineId, signal: int) -> None:
        async with self._link.open(machine_id) as pilot:
            requests.send_signal(pilot, signal)

    async def exec(self, machine_id: MachineId, spec: ExecSpec) -> ExecSession:
        run = self._link.running(machine_id)
        instance = run.spec()
        if instance is not None:
            process_of(instance, spec.process)
        pilot = await self._link.greet(run)
        try:
            if spec.process:
                refuse_older(pilot, machine_id)
            if spec.copy is not None:
                refuse_older(pilot, machine_id, COPY_VERSION, "copy files")
            return PilotSession(pilot, lambda channel: messages.exec_request(channel, spec))
        except BaseException:
            pilot.close()
            raise

    async def attach(self, machine_id: MachineId, process: int, *, rows: int = 0, cols: int = 0) -> PilotSession:
        run = self._link.running(machine_id)
        process_of(spec_of(run), process)
        pilot = await self._link.greet(run)
        try:
            refuse_older(pilot, machine_id, ATTACH_VERSION, "connect input")
            return PilotSession(pilot, lambda channel: messages.attach_request(channel, process, rows, cols))
        except BaseException:
            pilot.close()
            raise

    # --- one of its processes

    async def process_states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        return await self._processes.states(machine_id)

    async def await_process_change(
        self, machine_id: MachineId, seen: tuple[ProcessState, ...]
    ) -> tuple[ProcessState, ...]:
        return await self._processes.await_change(machine_id, seen)

    async def start_process(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        files = process_of(spec_of(self._link.running(machine_id)), index).files
        if sources_of(files):
            states = await self._processes.states(machine_id)
            here = self._files.run(machine_id)
            if states[index].run < run and not await self._copy_files(here, files, index):
                return (await self._processes.states(machine_id))[index]
        return await self._processes.start(machine_id, index, run)

    async def stop_process(self, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> ProcessState:
        return await self._processes.stop(machine_id, index, signal, timeout_s)

    # --- to its end

    async def wait(self, machine_id: MachineId) -> Exit:
        run = self._files.existing(machine_id)
        await self._link.wait_ended(run)
        return await self._journal.settle(run)

    async def stop(self, machine_id: MachineId, signal: str, timeout_s: float) -> Exit:
        number = messages.signal_number(signal)
        run = self._files.existing(machine_id)
        try:
            await self._technology.resume(run)
        except (SnapshotLost, Unavailable):  # nobody is there to be asked
            await self._technology.kill(machine_id, run, run.pid())
        with anyio.move_on_after(timeout_s + self._stop_grace_s):
            await self._ask_to_stop(run, number, timeout_s)
            return await self.wait(machine_id)
        await self._technology.kill(machine_id, run, run.pid())
        return await self.wait(machine_id)

    async def _ask_to_stop(self, run: RunDir, signal: int, timeout_s: float) -> None:
        """Return when the pilot has the request, or nobody is there to have it. While its clients have all the ways to
        a pilot, there is none for us, or it hangs up before its hello: then again, and it has so much less time."""
        kill_at = anyio.current_time() + timeout_s
        while run.lives():
            with suppress(Unavailable):
                async with self._link.connect(run) as pilot:
                    await pilot.hello()
                    requests.request_stop(pilot, signal, max(0.0, kill_at - anyio.current_time()))
                    inside("asked")
                    return
            await self._clock.sleep(_ASK_AGAIN_S)

    async def conclude(self, machine_id: MachineId, index: int) -> Exit:
        run = self._files.existing(machine_id)
        process_of(spec_of(run), index)
        if run.lives():
            await self._processes.conclude(run, index)
            with anyio.move_on_after(REST_S + self._stop_grace_s):
                return await self.wait(machine_id)
            await self._technology.kill(machine_id, run, run.pid())
        return await self.wait(machine_id)

    async def destroy(self, machine_id: MachineId) -> None:
        await self._give_back(machine_id, orphans=True)

    async def _give_back(self, machine_id: MachineId, *, orphans: bool) -> None:
        """`orphans`: look among all processes of the host for pilots that lost their journal, which takes a while. A
        run directory that has a journal was made when there was none."""
        run = self._files.run(machine_id)
        pid = await self._link.pid(run) if run.alive() else None
        await self._technology.kill(machine_id, run, pid)
        inside("killed")
        if orphans:
            await self._inventory.end_orphans(machine_id)
        await self._technology.clear(machine_id, run)
        inside("cleared")
        run.remove(self._trash)
        with suppress(OSError):
            run.path.parent.rmdir()  # others keep files there too; the last one takes the directory away

    # --- the view of the host

    async def list(self) -> list[MachineId]:
        return await self._inventory.list()

    async def running(self) -> frozenset[MachineId]:
        return await self._inventory.running()

    async def suspended(self) -> frozenset[MachineId]:
        return await self._inventory.suspended()

    async def orphans(self) -> frozenset[MachineId]:
        return await self._inventory.orphans()

    async def end_orphans(self, machine_id: MachineId) -> None:
        await self._inventory.end_orphans(machine_id)

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[LostPart]]:
        return await self._inventory.lost(machine_ids)

    async def mend(self, machine_id: MachineId) -> None:
        await self._inventory.mend(machine_id)

    def _refuse_unserved(self, spec: InstanceSpec) -> None:
        if spec.files and not self.features.rootfs:
            raise NotServed(f"the {self.name} driver cannot serve `files`: its machines have no root filesystem")
        refuse_containers(spec, self.name, self.features)
        self._encode(spec)

    def _encode(self, spec: InstanceSpec) -> bytes:
        return messages.run_spec(spec, contained=self._technology.contained, now=self._clock.now())


async def _started(pilot: Connection, spec: InstanceSpec) -> PilotStartAnswer:
    with anyio.fail_after(START_TIMEOUT_S):
        return await requests.started(pilot, spec.instance_id)
