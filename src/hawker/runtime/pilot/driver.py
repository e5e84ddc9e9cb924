"""The half of a driver that all technologies share whose pilot is a process of this host.

Nothing is remembered between calls: what is so is read from the run directory, its lock and the pilot, so a call from
a daemon that has just begun is like any other.
"""

import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from hawker.clock import Clock
from hawker.errors import NotFound, NotServed, Unavailable, WrongState
from hawker.failpoint import inside, reach
from hawker.ids import MachineId
from hawker.runtime.driver import (
    ExecSession,
    ExecSpec,
    Exit,
    Features,
    Inspection,
    InstanceSpec,
    OutputChunk,
    Part,
    Phase,
    ProcessInfo,
    Stats,
)
from hawker.runtime.pilot import conversation, messages
from hawker.runtime.pilot.connection import Connection, connect, pilot_pid
from hawker.runtime.pilot.conversation import Answer
from hawker.runtime.pilot.journal import Story, read_journal
from hawker.runtime.pilot.launch import pilot_files
from hawker.runtime.pilot.lifeline import ended
from hawker.runtime.pilot.loose import end_loose, loose_pilots
from hawker.runtime.pilot.output import read_output
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.session import PilotSession
from hawker.runtime.pilot.technology import Technology

ANSWER_TIMEOUT_S = 10.0  # for a pilot to say hello, and for each answer
START_TIMEOUT_S = 60.0  # for a spec to be running: files are written and programs loaded, maybe from a slow disk
STOP_GRACE_S = 5.0  # beyond the stop's own timeout, for the pilot to bury and record

_SIGKILL = 9
_AT_ONCE = 100  # locks looked at before others have a turn


class PilotDriver:
    """Keeps `Driver` for one technology. A machine's files are in `machines`/<machine id>/run."""

    def __init__(
        self, technology: Technology, machines: Path, clock: Clock, *, stop_grace_s: float = STOP_GRACE_S
    ) -> None:
        self._technology = technology
        self._machines = machines
        self._clock = clock
        self._stop_grace_s = stop_grace_s
        self.name: str = technology.name
        self.features: Features = technology.features

    async def check(self) -> None:
        await self._technology.check()

    # --- to running

    async def prepare(self, spec: InstanceSpec) -> None:
        run = self._run(spec.machine_id)
        self._refuse_unserved(spec)
        before = run.spec()
        if before is not None and before.instance_id == spec.instance_id:
            return
        if before is not None and run.alive():
            raise WrongState(f"machine {spec.machine_id} still has a running instance, {before.instance_id}")
        await self._give_back(spec.machine_id, loose=not run.journal.exists())
        run.path.mkdir(mode=0o700, parents=True)
        await self._technology.lay_out(spec, run)
        inside("laid_out")
        run.write_spec(spec)

    async def start(self, spec: InstanceSpec) -> Inspection:
        await self.prepare(spec)
        run = self._run(spec.machine_id)
        if run.alive():
            answer = await self._resume(run, spec)
        elif _workload_began(read_journal(run.journal)):
            answer = Answer.ENDED
        else:
            answer = await self._launch(run, spec)
        if answer is Answer.ENDED:
            await self.wait(spec.machine_id)
        return await self.inspect(spec.machine_id)

    async def _launch(self, run: RunDir, spec: InstanceSpec) -> Answer:
        """The spec is on its way before the pilot exists: it waits in the socket, so nobody waits for anybody."""
        with pilot_files(run) as fds:
            pilot = connect(run)
            try:
                conversation.send_spec(pilot, self._encode(spec))
                pid = await self._technology.launch(spec, run, fds)
                inside("spawned")
                run.write_pid(pid)
            except BaseException:
                pilot.close()
                raise
        async with pilot:
            return await _started(pilot, spec)

    async def _resume(self, run: RunDir, spec: InstanceSpec) -> Answer:
        """A pilot runs: an earlier call was cut short, or this one comes twice. It knows its spec again."""
        try:
            async with connect(run) as pilot:
                conversation.send_spec(pilot, self._encode(spec))
                return await _started(pilot, spec)
        except Unavailable:
            return Answer.ENDED

    # --- what is so

    async def recover(self, machine_id: MachineId) -> Inspection:
        return await self.inspect(machine_id)

    async def inspect(self, machine_id: MachineId) -> Inspection:
        run = self._run(machine_id)
        spec = run.spec()
        if spec is None:
            return Inspection(phase=Phase.ABSENT)
        alive, story = run.alive(), read_journal(run.journal)
        if not alive and _workload_began(story):
            exit = await self._settle(machine_id, run)
            return Inspection(phase=Phase.EXITED, instance_id=spec.instance_id, started_at=story.ready_at, exit=exit)
        if not alive or story.ready_at is None:
            return Inspection(phase=Phase.PREPARED, instance_id=spec.instance_id)
        return Inspection(
            phase=Phase.RUNNING, instance_id=spec.instance_id, pid=await self._pid(run), started_at=story.ready_at
        )

    async def wait(self, machine_id: MachineId) -> Exit:
        run = self._existing(machine_id)
        while run.alive():
            pid = await self._pid(run)
            if pid is not None:
                await ended(pid, run.alive)
        return await self._settle(machine_id, run)

    async def _settle(self, machine_id: MachineId, run: RunDir) -> Exit:
        """The pilot is dead: the exit that it recorded, or what its silence means. Decided once, and kept; what
        else the host holds of the instance is given back now, so that the next start need not."""
        settled = run.exit()
        if settled is not None:
            return settled
        story = read_journal(run.journal)
        if not _workload_began(story):
            raise NotFound(f"machine {machine_id} has no instance that was started")
        await self._technology.kill(machine_id, run, run.pid())
        recorded = story.final_exit or story.first_exit
        lost = Exit(exit_code=128 + _SIGKILL, signal=_SIGKILL, exited_at=self._clock.now())
        exit = self._technology.complete(run, recorded or lost)
        reach("instance.exit.ended")
        run.write_exit(exit)
        reach("instance.exit.settled")
        await self._technology.clear(machine_id, run)
        return exit

    async def _pid(self, run: RunDir) -> int | None:
        """The pilot's process id, also when the daemon that started it died before it wrote it down."""
        pid = run.pid()
        if pid is not None or not run.alive():
            return pid
        with anyio.fail_after(ANSWER_TIMEOUT_S):
            async with connect(run) as pilot:
                await pilot.hello()
        pid = pilot_pid(run)
        if pid is not None:
            run.write_pid(pid)
        return pid

    async def stats(self, machine_id: MachineId) -> Stats:
        run = self._running(machine_id)
        pid = await self._pid(run)
        if pid is None:
            raise WrongState(f"machine {machine_id} is not running")
        return self._technology.stats(run, pid)

    async def processes(self, machine_id: MachineId) -> tuple[ProcessInfo, ...]:
        async with self._pilot(machine_id) as pilot:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                return await conversation.list_processes(pilot)

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        return read_output(self._run(machine_id).outputs, after=after, tail=tail)

    async def list(self) -> list[MachineId]:
        if not self._machines.is_dir():
            return []
        loose = await self.loose()
        with_runs = (MachineId(path.name) for path in self._machines.iterdir() if (path / "run").is_dir())
        return sorted({*with_runs, *loose})

    async def running(self) -> frozenset[MachineId]:
        """In this thread, a few at a time: a look at a journal's lock from another one could come between a launch and
        the lock that it takes."""
        found: set[MachineId] = set()
        for count, name in enumerate(_names(self._machines)):
            if count % _AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            if self._run(MachineId(name)).alive():
                found.add(MachineId(name))
        return frozenset(found)

    async def loose(self) -> frozenset[MachineId]:
        return frozenset(await anyio.to_thread.run_sync(loose_pilots, self._machines))

    async def end_loose(self, machine_id: MachineId) -> None:
        await end_loose(self._machines, machine_id)

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[Part]]:
        lost = await anyio.to_thread.run_sync(self._find_lost, tuple(machine_ids))
        return {each: parts for each, parts in lost.items() if self._run(each).alive()}

    def _find_lost(self, machine_ids: tuple[MachineId, ...]) -> dict[MachineId, frozenset[Part]]:
        lost = {each: self._technology.lost(each) for each in machine_ids}
        return {each: parts for each, parts in lost.items() if parts}

    async def mend(self, machine_id: MachineId) -> None:
        run = self._running(machine_id)
        spec, pid = run.spec(), await self._pid(run)
        if spec is not None and pid is not None:
            await anyio.to_thread.run_sync(self._technology.mend, spec, pid)

    # --- to a running machine

    async def signal(self, machine_id: MachineId, signal: int) -> None:
        async with self._pilot(machine_id) as pilot:
            conversation.send_signal(pilot, signal)

    async def exec(self, machine_id: MachineId, spec: ExecSpec) -> ExecSession:
        pilot = await self._greeted(self._running(machine_id))
        try:
            return PilotSession(pilot, spec)
        except BaseException:
            pilot.close()
            raise

    # --- to the end

    async def stop(self, machine_id: MachineId, signal: str, timeout_s: float) -> Exit:
        number = messages.signal_number(signal)
        run = self._existing(machine_id)
        with suppress(Unavailable):
            async with connect(run) as pilot:
                conversation.request_stop(pilot, number, timeout_s)
                inside("asked")
        with anyio.move_on_after(timeout_s + self._stop_grace_s):
            return await self.wait(machine_id)
        await self._technology.kill(machine_id, run, run.pid())
        return await self.wait(machine_id)

    async def destroy(self, machine_id: MachineId) -> None:
        await self._give_back(machine_id, loose=True)

    async def _give_back(self, machine_id: MachineId, *, loose: bool) -> None:
        """`loose`: look among all processes of the host for pilots that lost their journal, which takes a while. A run
        directory that has one was made when there was none."""
        run = self._run(machine_id)
        pid = await self._pid(run) if run.alive() else None
        await self._technology.kill(machine_id, run, pid)
        inside("killed")
        if loose:
            await end_loose(self._machines, machine_id)
        await self._technology.clear(machine_id, run)
        inside("cleared")
        run.remove()
        with suppress(OSError):
            run.path.parent.rmdir()  # others keep files there too; the last one takes the directory away

    # --- finding

    def _run(self, machine_id: MachineId) -> RunDir:
        return RunDir(self._machines / machine_id / "run")

    def _existing(self, machine_id: MachineId) -> RunDir:
        run = self._run(machine_id)
        if run.spec() is None:
            raise NotFound(f"machine {machine_id} has no instance")
        return run

    def _running(self, machine_id: MachineId) -> RunDir:
        run = self._existing(machine_id)
        if not run.alive():
            raise WrongState(f"machine {machine_id} is not running")
        return run

    @asynccontextmanager
    async def _pilot(self, machine_id: MachineId) -> AsyncIterator[Connection]:
        pilot = await self._greeted(self._running(machine_id))
        async with pilot:
            yield pilot

    async def _greeted(self, run: RunDir) -> Connection:
        pilot = connect(run)
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                await pilot.hello()
        except BaseException:
            pilot.close()
            raise
        return pilot

    def _refuse_unserved(self, spec: InstanceSpec) -> None:
        if spec.files and not self.features.rootfs:
            raise NotServed(f"the {self.name} driver cannot serve `files`: its machines have no root filesystem")
        self._encode(spec)

    def _encode(self, spec: InstanceSpec) -> bytes:
        return messages.run_spec(spec, contained=self._technology.contained)


async def _started(pilot: Connection, spec: InstanceSpec) -> Answer:
    with anyio.fail_after(START_TIMEOUT_S):
        return await conversation.started(pilot, spec.instance_id)


def _workload_began(story: Story) -> bool:
    """Before that, a dead pilot means nothing: another may be launched."""
    return story.instance_id is not None or story.final_exit is not None


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []
