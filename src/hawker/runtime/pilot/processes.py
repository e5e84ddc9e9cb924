"""The processes of a machine, one by one: what the pilot says of them while it lives, what its journal says after that,
and what it is asked to do with one."""

import math
from contextlib import suppress

import anyio
import msgspec

from hawker.errors import Unavailable, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Exit, ProcessPhase, ProcessState, may_begin, process_of, refuse_conclusion
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.connection import PATIENCE, Connection, Inbox
from hawker.runtime.pilot.exit import ExitJournal, JournalState
from hawker.runtime.pilot.frames import FrameKind, MalformedPilotFrame, PayloadReader
from hawker.runtime.pilot.link import ANSWER_TIMEOUT_S, InstanceEnded, PilotLink
from hawker.runtime.pilot.rundir import MachineFiles, RunDir, spec_of
from hawker.runtime.spec import InstanceSpec

START_TIMEOUT_S = 60.0  # for a spec or a run to be executed: files are written and programs loaded, maybe slowly
_KILLED = 9
_KILL_GRACE_S = 5.0  # beyond a stop's own timeout, for the pilot to kill and bury
FIRST_VERSION = 2  # of the protocol that speaks of one process


class Processes:
    """Keeps the calls of `Driver` about one process. Asks the pilot while it lives; what an older one does not tell,
    and a dead one, is read from the journal."""

    def __init__(self, files: MachineFiles, link: PilotLink, journal: ExitJournal) -> None:
        self._files = files
        self._link = link
        self._journal = journal

    async def states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        """See `Driver.process_states`."""
        run = self._files.existing(machine_id)
        with suppress(InstanceEnded):
            async with self._link.ask(run, ANSWER_TIMEOUT_S) as pilot:
                if pilot.version >= FIRST_VERSION:
                    return await ProcessWatch(pilot, spec_of(run)).begin()
        return self._recorded(run)

    async def await_change(self, machine_id: MachineId, seen: tuple[ProcessState, ...]) -> tuple[ProcessState, ...]:
        """See `Driver.await_process_change`."""
        run = self._files.existing(machine_id)
        with suppress(InstanceEnded):
            async with self._link.ask(run, math.inf) as pilot:
                if pilot.version >= FIRST_VERSION:
                    return await _changed(ProcessWatch(pilot, spec_of(run)), seen)
            await self._link.wait_ended(run)
        return self._recorded(run)

    async def start(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        """See `Driver.start_process`. An answer that the end of the machine cut off is read from the journal: a run may
        be that end itself."""
        here = self._link.running(machine_id)
        spec = spec_of(here)
        process_of(spec, index)
        with suppress(InstanceEnded):
            async with self._link.ask(here, START_TIMEOUT_S) as pilot:
                return await begin_run(ProcessWatch(pilot, spec), spec, index, run)
        state = self._recorded(here)[index]
        if state.run < run:
            raise WrongState(f"machine {machine_id} is not running")
        return state

    async def stop(self, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> ProcessState:
        """See `Driver.stop_process`."""
        number = messages.signal_number(signal)
        run = self._files.existing(machine_id)
        spec = spec_of(run)
        process_of(spec, index)
        with suppress(InstanceEnded):
            async with self._link.ask(run, timeout_s + _KILL_GRACE_S) as pilot:
                return await end_run(ProcessWatch(pilot, spec), index, number, timeout_s)
        return self._recorded(run)[index]

    async def conclude(self, run: RunDir, index: int) -> None:
        """Ask for the end of the instance; nothing when it has ended. Raises `WrongState` when that process has not
        ended. The instance's end is for others to wait for."""
        spec = spec_of(run)
        with suppress(InstanceEnded):
            async with self._link.ask(run, ANSWER_TIMEOUT_S) as pilot:
                await conclude(ProcessWatch(pilot, spec), spec, index)

    def _recorded(self, run: RunDir) -> tuple[ProcessState, ...]:
        state = self._journal.read(run)
        over = None if run.lives() else run.exit() or state.final_exit or state.first_exit
        return recorded_states(spec_of(run), state, over)


def refuse_older(
    pilot: Connection, machine_id: MachineId, needed: int = FIRST_VERSION, lacks: str = "know its processes apart"
) -> None:
    """Raises `WrongState` for a pilot that does not speak version `needed`."""
    if pilot.version < needed:
        raise WrongState(f"machine {machine_id} was started by an older version, which does not {lacks}: restart it")


class ProcessWatch:
    """A look at all processes that goes on as they change."""

    def __init__(self, pilot: Connection, spec: InstanceSpec) -> None:
        refuse_older(pilot, spec.machine_id)
        self._pilot = pilot
        self._spec = spec
        self._states: dict[int, ProcessState] = {}
        self._idle_frames = 0
        self._inbox = Inbox()
        self.channel = pilot.open_channel(self._inbox)
        pilot.send(frames.encode(FrameKind.WATCH, self.channel))

    async def begin(self) -> tuple[ProcessState, ...]:
        """The states now. Call it once, first. Raises `Unavailable` when the pilot runs other processes, or has
        gone."""
        for _ in range(PATIENCE):
            if await self._take() == FrameKind.WATCHING:
                break
        if len(self._states) != len(self._spec.processes):
            raise Unavailable(f"machine {self._spec.machine_id} runs other processes than its spec says")
        return self._told()

    async def next(self) -> tuple[ProcessState, ...]:
        """The states after the next change, or answer. Raises `Unavailable` when the pilot has gone, or says the same
        over and over."""
        before = self._states.copy()
        await self._take()
        self._idle_frames = self._idle_frames + 1 if self._states == before else 0
        if self._idle_frames > PATIENCE:
            raise Unavailable("the machine answered what makes no sense: it says the same over and over")
        return self._told()

    def send(self, request: bytes) -> None:
        self._pilot.send(request)

    def _told(self) -> tuple[ProcessState, ...]:
        return tuple(self._states[index] for index in range(len(self._spec.processes)))

    async def _take(self) -> int:
        frame = await self._inbox.take()
        try:
            if frame.kind == FrameKind.STATE:
                index, state = messages.read_state(frame.payload)
                if index < len(self._spec.processes):
                    self._states[index] = msgspec.structs.replace(state, name=self._spec.processes[index].name)
            if frame.kind == FrameKind.REFUSED:
                raise WrongState(f"machine {self._spec.machine_id}: {PayloadReader(frame.payload).words()}")
        except MalformedPilotFrame as broken:
            raise Unavailable(f"the machine answered what makes no sense: {broken}") from broken
        return frame.kind


async def _changed(watch: ProcessWatch, seen: tuple[ProcessState, ...]) -> tuple[ProcessState, ...]:
    with anyio.fail_after(ANSWER_TIMEOUT_S):
        states = await watch.begin()
    while states == seen:
        states = await watch.next()
    return states


async def begin_run(watch: ProcessWatch, spec: InstanceSpec, index: int, run: int) -> ProcessState:
    """Begin it unless it was begun, and wait until it is executed or has ended."""
    states = await watch.begin()
    if may_begin(spec.machine_id, states[index], run):
        watch.send(messages.run_request(watch.channel, index, run))
    while states[index].run < run or states[index].state is ProcessPhase.STARTING:
        states = await watch.next()
    return states[index]


async def end_run(watch: ProcessWatch, index: int, signal: int, timeout_s: float) -> ProcessState:
    """Have it ended, and wait for that. A later run is none of ours."""
    states = await watch.begin()
    run = states[index].run
    if states[index].state in (ProcessPhase.STARTING, ProcessPhase.RUNNING):
        watch.send(messages.end_request(watch.channel, index, signal, timeout_s))
    while states[index].run == run and states[index].state in (ProcessPhase.STARTING, ProcessPhase.RUNNING):
        states = await watch.next()
    return states[index]


async def conclude(watch: ProcessWatch, spec: InstanceSpec, index: int) -> None:
    """Raises `WrongState` when that process has not ended. The machine's end is for others to wait for."""
    refuse_conclusion(spec.machine_id, (await watch.begin())[index])
    watch.send(messages.conclude_request(watch.channel, index))


def recorded_states(spec: InstanceSpec, journal: JournalState, exit: Exit | None) -> tuple[ProcessState, ...]:
    """The states of all processes, from the journal alone. `exit` is the machine's, once it has one: what was not
    recorded to have ended before was killed then."""
    return tuple(
        msgspec.structs.replace(_recorded(index, journal, exit, held=process.held), name=process.name)
        for index, process in enumerate(spec.processes)
    )


def _recorded(index: int, journal: JournalState, exit: Exit | None, *, held: bool) -> ProcessState:
    state, own = journal.runs.get(index), journal.exits.get(index)
    if state is None and own is None and (held or journal.instance_id is None):
        return ProcessState()
    if state is None:  # it ran once, as the machine did
        state = ProcessState(state=ProcessPhase.RUNNING, run=1, started_at=journal.ready_at)
    if own is not None:
        return msgspec.structs.replace(state, state=ProcessPhase.EXITED, pid=None, last_exit=own)
    if exit is None or state.state is ProcessPhase.EXITED:
        return state
    killed = Exit(exit_code=128 + _KILLED, signal=_KILLED, exited_at=exit.exited_at, process=index)
    return msgspec.structs.replace(state, state=ProcessPhase.EXITED, pid=None, last_exit=killed)
