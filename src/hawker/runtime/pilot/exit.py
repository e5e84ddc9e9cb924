"""The exit of an instance: what its journal recorded, or what the silence of a dead pilot means.

An exit is decided once and kept in the run directory. In the pilot's event journal (guest/PROTOCOL.md) a torn or
foreign tail is where it ends. The journal of a machine with a kernel of its own is written by its guest, which may lie:
`sanitized` takes out what cannot be. What can have been it may still lie about, to its own loss.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.failpoint import reach
from hawker.runtime.driver import Exit, ProcessPhase, ProcessState
from hawker.runtime.pilot.frames import MalformedPilotFrame, PayloadReader
from hawker.runtime.pilot.messages import read_ending
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.technology import Technology
from hawker.runtime.spec import Ends, InstanceSpec
from hawker.value_object import ValueObject

_HEAD = struct.Struct("<IHBx")
_READ_MAX = 64 << 10  # a pilot writes less than 16 KiB
_T = TypeVar("_T")


class _Record(IntEnum):
    STARTED = 1
    ACCEPTED = 2
    READY = 3
    PROCESS_EXIT = 4
    FINAL_EXIT = 5
    RUN_BEGAN = 6
    RUN_ENDED = 7
    STAGES = 8


class BootStages(ValueObject, frozen=True):
    """How far a guest was on its way up, in seconds since its kernel began, by the guest's own clock. `own_s` is
    the pilot's own share, without waiting and without the kernel's work on modules, disks, mounts and network."""

    pilot_s: float
    """The pilot has begun."""
    devices_s: float
    """The disks are there."""
    streams_s: float
    """The ways to the host are open."""
    spec_s: float
    """The run spec has come."""
    root_s: float
    """The root filesystem is mounted."""
    network_s: float
    """The network is up."""
    executed_s: float
    """The machine's processes have begun."""
    own_s: float


class JournalState(ValueObject, frozen=True):
    """The state of a machine that its journal tells. Times are Unix seconds. `exits` and `runs` are by the number of
    the process: how it ended in a machine that ends with the first; where it is in one that ends when it is told to."""

    started_at: float | None = None
    pilot_pid: int | None = None  # as the pilot sees itself: 1 in a pid namespace of its own
    instance_id: str | None = None
    """Of the instance whose spec it took; None before that."""
    ready_at: float | None = None
    first_exit: Exit | None = None
    final_exit: Exit | None = None
    exits: Mapping[int, Exit] = msgspec.field(default_factory=dict)
    runs: Mapping[int, ProcessState] = msgspec.field(default_factory=dict)
    stages: BootStages | None = None  # only of a machine with a kernel of its own


def read_journal(path: Path) -> JournalState:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return JournalState()
    try:
        return replay_journal(os.read(fd, _READ_MAX))
    finally:
        os.close(fd)


def replay_journal(data: bytes) -> JournalState:
    state = JournalState()
    for kind, payload in _records(data):
        try:
            state = _continued(state, kind, PayloadReader(payload))
        except MalformedPilotFrame:
            break
    return state


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEAD.size <= len(data):
        crc, length, kind = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if end > len(data) or zlib.crc32(data[at + 4 : end]) != crc:
            return
        yield kind, data[at + _HEAD.size : end]
        at = end


def _continued(state: JournalState, kind: int, reader: PayloadReader) -> JournalState:
    match kind:
        case _Record.STARTED:
            return replace(state, started_at=_seconds(reader), pilot_pid=reader.number(4))
        case _Record.ACCEPTED:
            reader.number(8)
            return replace(state, instance_id=reader.words())
        case _Record.READY:
            return replace(state, ready_at=_seconds(reader))
        case _Record.PROCESS_EXIT:
            exit = read_ending(reader)
            return replace(state, first_exit=state.first_exit or exit, exits={**state.exits, exit.process: exit})
        case _Record.FINAL_EXIT:
            return replace(state, final_exit=read_ending(reader))
        case _Record.RUN_BEGAN:
            return _began(state, reader)
        case _Record.RUN_ENDED:
            return _ended(state, reader)
        case _Record.STAGES:
            return replace(state, stages=BootStages(*(_seconds(reader) for _ in BootStages.__struct_fields__)))
        case _:
            return state  # a newer pilot knows more


def _began(state: JournalState, reader: PayloadReader) -> JournalState:
    """Runs come in order; one that is not later is what a cut-short rewrite left behind."""
    at, process, run, pid = _seconds(reader), reader.number(1), reader.number(4), reader.number(4)
    before = state.runs.get(process, ProcessState())
    if run <= before.run:
        return state
    began = ProcessState(
        state=ProcessPhase.RUNNING, run=run, pid=pid or None, started_at=at, last_exit=before.last_exit
    )
    return replace(state, runs={**state.runs, process: began})


def _ended(state: JournalState, reader: PayloadReader) -> JournalState:
    run, exit = reader.number(4), read_ending(reader)
    before = state.runs.get(exit.process, ProcessState())
    if run < before.run:
        return state
    ended = msgspec.structs.replace(before, state=ProcessPhase.EXITED, run=run, pid=None, last_exit=exit)
    return replace(state, runs={**state.runs, exit.process: ended})


def _seconds(reader: PayloadReader) -> float:
    return reader.number(8) / 1e9


def sanitized(state: JournalState, processes: int, now: float) -> JournalState:
    """The journal of an untrusted guest, without what has yet to happen and what is of a process that the machine does
    not have. `processes` is how many it has, `now` the host's time in Unix seconds."""
    return replace(
        state,
        started_at=_past(state.started_at, now),
        ready_at=_past(state.ready_at, now),
        first_exit=_exit(state.first_exit, processes, now),
        final_exit=_exit(state.final_exit, processes, now),
        exits={index: _known(exit, now) for index, exit in _real(state.exits, processes)},
        runs={index: _process(process, now) for index, process in _real(state.runs, processes)},
    )


def _real(told: Mapping[int, _T], processes: int) -> list[tuple[int, _T]]:
    return [(index, what) for index, what in told.items() if index < processes]


def _exit(exit: Exit | None, processes: int, now: float) -> Exit | None:
    if exit is None:
        return None
    return msgspec.structs.replace(_known(exit, now), process=exit.process if exit.process < processes else 0)


def _known(exit: Exit, now: float) -> Exit:
    return msgspec.structs.replace(exit, exited_at=min(exit.exited_at, now))


def _process(process: ProcessState, now: float) -> ProcessState:
    last_exit = process.last_exit and _known(process.last_exit, now)
    return msgspec.structs.replace(process, started_at=_past(process.started_at, now), last_exit=last_exit)


def _past(at: float | None, now: float) -> float | None:
    return None if at is None else min(at, now)


_SIGKILL = 9
_CANNOT_EXECUTE = 126  # as shells say it
_TOO_EARLY = "it was killed before its command was known to run"


class ExitJournal:
    """Reads what pilots recorded, and settles the exits of those that are dead."""

    def __init__(self, technology: Technology, clock: Clock) -> None:
        self._technology = technology
        self._clock = clock
        self._settling: dict[RunDir, anyio.Lock] = {}

    def read(self, run: RunDir) -> JournalState:
        """What the machine's journal tells; of a guest's, as much as can be believed."""
        state = read_journal(run.journal)
        spec = run.spec() if self._technology.features.kernel else None
        return state if spec is None else sanitized(state, len(spec.processes), self._clock.now())

    def has_ended(self, run: RunDir, state: JournalState) -> bool:
        """Whether an instance that nobody runs has ended, or could not begin. If not, nothing that was done to it means
        anything, and it may be launched."""
        return workload_began(state) or run.exit() is not None or self._technology.failed_to_boot(run)

    async def settle(self, run: RunDir) -> Exit:
        """The exit of an instance whose pilot is dead: as it was recorded, or what its silence means. Decided once, and
        kept; what else the host holds of the instance is given back now, so that the next start need not. Raises
        `NotFound` when it never began. Who stops a machine and who watches it come at the same time: one does it, the
        other waits for that."""
        lock = self._settling.setdefault(run, anyio.Lock())
        try:
            async with lock:
                return await self._settle(run)
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._settling.pop(run, None)

    async def _settle(self, run: RunDir) -> Exit:
        settled = run.exit()
        if settled is not None:
            return settled
        state = self.read(run)
        if not self.has_ended(run, state):
            raise NotFound(f"machine {run.machine_id} has no instance that was started")
        await self._technology.kill(run.machine_id, run, run.pid())
        recorded = state.final_exit or state.first_exit
        if recorded is not None and _is_told(run.spec()):  # judged by the pilot, run by run
            return await self._keep(run, recorded)
        exit = self._technology.complete(run, recorded, self._killed())
        if state.ready_at is None and not exit.reason and not exit.fault:
            exit = msgspec.structs.replace(exit, reason=_TOO_EARLY)
        return await self._keep(run, exit)

    async def give_up(self, run: RunDir, fault: str) -> Exit:
        """End an instance that cannot go on; its exit says why, and what was last heard of it."""
        words = self._technology.last_words(run)
        await self._technology.kill(run.machine_id, run, run.pid())
        fault = f"{fault}; its kernel's last words: {words}" if words else fault
        return await self._keep(run, msgspec.structs.replace(self._killed(), fault=fault))

    async def refuse(self, run: RunDir, reason: str) -> Exit:
        """End an instance whose command cannot be begun; its exit says why, as if there were no such command."""
        await self._technology.kill(run.machine_id, run, run.pid())
        return await self._keep(run, Exit(exit_code=_CANNOT_EXECUTE, exited_at=self._clock.now(), reason=reason))

    async def _keep(self, run: RunDir, exit: Exit) -> Exit:
        reach("instance.exit.ended")
        run.write_exit(exit)
        reach("instance.exit.settled")
        await self._technology.clear(run.machine_id, run)
        return exit

    def _killed(self) -> Exit:
        return Exit(exit_code=128 + _SIGKILL, signal=_SIGKILL, exited_at=self._clock.now())


def workload_began(state: JournalState) -> bool:
    """Whether the pilot took its spec, or recorded an exit all the same."""
    return state.instance_id is not None or state.final_exit is not None


def _is_told(spec: InstanceSpec | None) -> bool:
    return spec is not None and spec.ends is Ends.TOLD
