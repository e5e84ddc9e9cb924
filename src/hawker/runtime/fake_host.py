"""The fake driver's host: it holds the instances and outlives a driver, as a host outlives a daemon.

Time passes only as the clock says: what is due is settled whenever somebody looks. Tests `script` faults of the
driver's calls, and `end` an instance from outside.
"""

import math
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from hawker.clock import Clock
from hawker.ids import MachineId
from hawker.runtime.driver import ALIVE, Exit, LostPart, OutputChunk, Phase, ProcessPhase, ProcessState
from hawker.runtime.fake_program import Script, read_command
from hawker.runtime.spec import Ends, FileSpec, InstanceSpec, ProcessSpec
from hawker.value_object import ValueObject

_FIRST_PID_INSIDE = 2  # inside its machine; 1 is the pilot
_FIRST_PID = 1000
_SIGNALLED = 128
_HARMLESS = (signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT)


@dataclass(slots=True)
class FakeProcess:
    """One process of an instance, through its runs. `ends_at` is when it ends by itself; infinite for a server, and
    while it does not run."""

    spec: ProcessSpec
    index: int
    state: ProcessPhase = ProcessPhase.HELD
    run: int = 0
    started_at: float | None = None
    ends_at: float = math.inf
    last_exit: Exit | None = None
    script: Script = field(default_factory=Script)

    @property
    def running(self) -> bool:
        return self.state is ProcessPhase.RUNNING

    def begin(self, now: float, files: Mapping[str, bytes]) -> Script:
        """The next run. A script that is `missing` must be ended by the caller."""
        own = files if self.spec.root is None else contents(self.spec.files)
        self.script = read_command(self.spec.argv, self.spec.env, own)
        self.state, self.run, self.started_at = ProcessPhase.RUNNING, self.run + 1, now
        self.ends_at = now + self.script.runs_s
        return self.script

    def end(self, exit: Exit) -> None:
        self.state, self.ends_at, self.last_exit = ProcessPhase.EXITED, math.inf, exit

    def told(self) -> ProcessState:
        return ProcessState(
            name=self.spec.name,
            state=self.state,
            run=self.run,
            pid=_FIRST_PID_INSIDE + self.index if self.running else None,
            started_at=self.started_at,
            last_exit=self.last_exit,
        )


class FakeFault(ValueObject, frozen=True):
    """What happens at the next call of one kind: wait `delay_s`, then raise `error` before the call's effect, or after
    it when `after`. An `error` that is no `Exception` plays the daemon's death."""

    error: BaseException | None = None
    after: bool = False
    delay_s: float = 0.0


@dataclass(slots=True)
class Instance:
    """One incarnation on the fake host. `ended` is set with `exit`; `changed` is set, and replaced, when a process
    begins or ends. `stopping`: the machine is asked to end."""

    spec: InstanceSpec
    phase: Phase = Phase.PREPARED
    pid: int | None = None
    started_at: float | None = None
    exit: Exit | None = None
    stopping: bool = False
    chunks: list[OutputChunk] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    ended: anyio.Event = field(default_factory=anyio.Event)
    changed: anyio.Event = field(default_factory=anyio.Event)
    processes: tuple[FakeProcess, ...] = ()

    @property
    def next_end(self) -> float:
        """When the next process ends by itself; infinite while none does, or all are held still."""
        if self.phase is Phase.SUSPENDED:
            return math.inf
        return min((process.ends_at for process in self.processes if process.running), default=math.inf)

    @property
    def running(self) -> list[FakeProcess]:
        return [process for process in self.processes if process.running]


class FakeHost:
    """Instances, by machine."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stubborn: set[MachineId] = set()  # these ignore every signal but SIGKILL
        self.orphans: set[MachineId] = set()  # these have a pilot that lost its directory
        self.worn: dict[MachineId, set[LostPart]] = {}  # what running instances have lost
        self.used: dict[MachineId, int] = {}  # MiB that instances need; 1 unless told
        self.cached: dict[MachineId, int] = {}  # MiB that they could do without
        self.memories: set[MachineId] = set()  # these have a snapshot of their memory on the host
        self.spoilt: set[MachineId] = set()  # and it cannot be used
        self.volume_sizes: dict[tuple[MachineId, str], int] = {}  # bytes, as guests were told
        self.still: set[tuple[MachineId, str]] = set()  # volumes that a guest holds still
        self._instances: dict[MachineId, Instance] = {}
        self._faults: dict[str, list[FakeFault]] = {}
        self._last_pid = _FIRST_PID

    def script(self, call: str, *faults: FakeFault) -> None:
        """What befalls the next calls of the driver's method `call`, one each."""
        self._faults.setdefault(call, []).extend(faults)

    def end(
        self, machine_id: MachineId, code: int = 0, *, signal: int = 0, oom_killed: bool = False, fault: str = ""
    ) -> None:
        """The running instance ends now, whether a daemon watches or not."""
        instance = self.look(machine_id)
        if instance is not None and instance.phase is Phase.RUNNING:
            now = self.clock.now()
            exit = Exit(exit_code=code, signal=signal, oom_killed=oom_killed, exited_at=now, fault=fault)
            self._settle(instance, exit)

    def signals(self, machine_id: MachineId) -> list[int]:
        """Every signal that the current instance was sent."""
        instance = self.look(machine_id)
        return [] if instance is None else instance.signals

    def end_process(
        self, machine_id: MachineId, index: int, code: int = 0, *, signal: int = 0, oom_killed: bool = False
    ) -> None:
        """One process ends now, whether a daemon watches or not."""
        instance = self.look(machine_id)
        if instance is not None and instance.processes[index].running:
            now = self.clock.now()
            exit = Exit(exit_code=code, signal=signal, oom_killed=oom_killed, exited_at=now, process=index)
            self._note(instance, exit)

    def look(self, machine_id: MachineId) -> Instance | None:
        instance = self._instances.get(machine_id)
        while instance is not None and instance.phase is Phase.RUNNING and instance.next_end <= self.clock.now():
            first = min(instance.running, key=lambda process: process.ends_at)
            self._note(instance, Exit(exit_code=first.script.code, exited_at=first.ends_at, process=first.index))
        return instance

    def used_mib(self, machine_id: MachineId) -> int:
        return self.used.get(machine_id, 1)

    def drop_caches(self, machine_id: MachineId, amount_mib: int) -> int:
        dropped = min(max(0, amount_mib), self.cached.get(machine_id, 0))
        self.cached[machine_id] = self.cached.get(machine_id, 0) - dropped
        return dropped

    def place(self, spec: InstanceSpec) -> Instance:
        """Make the instance's place; drops an earlier one of the machine."""
        self.worn.pop(spec.machine_id, None)
        self.orphans.discard(spec.machine_id)
        self._forget_memory(spec.machine_id)
        processes = tuple(FakeProcess(each, index) for index, each in enumerate(spec.processes))
        self._instances[spec.machine_id] = instance = Instance(spec, processes=processes)
        return instance

    def launch(self, instance: Instance) -> None:
        """Start the processes that are not held; a command that does not exist ends with the reason."""
        instance.pid, instance.started_at, instance.phase = self._next_pid(), self.clock.now(), Phase.RUNNING
        for process in instance.processes:
            if not process.spec.held and instance.phase is Phase.RUNNING:
                self.begin(instance, process.index)

    def _next_pid(self) -> int:
        self._last_pid += 1
        return self._last_pid

    def begin(self, instance: Instance, index: int) -> None:
        """The next run of one process."""
        now = self.clock.now()
        script = instance.processes[index].begin(now, contents(instance.spec.files))
        if script.missing:
            return self._note(
                instance, Exit(exit_code=script.code, exited_at=now, process=index, reason=script.missing)
            )
        for stream, data in script.output:
            instance.chunks.append(OutputChunk(len(instance.chunks), now, stream, index, data))
        self._tell(instance)

    def suspend(self, instance: Instance, *, saves: bool = False) -> None:
        """`saves`: by a snapshot of its memory, and no process is left."""
        if instance.phase is Phase.RUNNING and saves:
            self.memories.add(instance.spec.machine_id)
            instance.pid = None
        instance.phase = Phase.SUSPENDED
        self._tell(instance)

    def lose(self, instance: Instance, exit: Exit) -> None:
        """A suspended instance ends with its memory."""
        self.memories.discard(instance.spec.machine_id)
        self.spoilt.discard(instance.spec.machine_id)
        self._settle(instance, exit)

    def resume(self, instance: Instance) -> None:
        """What would have ended meanwhile ends now."""
        if instance.phase is Phase.SUSPENDED:
            instance.phase = Phase.RUNNING
            if instance.spec.machine_id in self.memories:
                self.memories.discard(instance.spec.machine_id)
                instance.pid = self._next_pid()
            for process in instance.running:
                process.ends_at = max(process.ends_at, self.clock.now())
            self._tell(instance)

    def deliver(self, instance: Instance, number: int) -> None:
        """Send a signal to every process; the machine ends when it is to be stopped, or when any end is its own."""
        instance.signals.append(number)
        if self._ignored(instance, number):
            return
        if instance.stopping and not instance.running:
            last = max((each.last_exit for each in instance.processes if each.last_exit), key=_moment, default=None)
            return self._settle(instance, last or self._killed(number, 0))
        for process in instance.running:
            self._note(instance, self._killed(number, process.index))

    def deliver_to(self, instance: Instance, index: int, number: int) -> None:
        """Send a signal to one process."""
        instance.signals.append(number)
        if not self._ignored(instance, number) and instance.processes[index].running:
            self._note(instance, self._killed(number, index))

    def conclude(self, instance: Instance, index: int) -> None:
        exit = instance.processes[index].last_exit
        assert exit is not None, "the driver has seen that it ended"
        self._settle(instance, exit)

    def remove(self, machine_id: MachineId) -> None:
        instance = self.look(machine_id)
        if instance is not None and instance.phase in ALIVE:
            self.resume(instance)
            self.deliver(instance, signal.SIGKILL)
        self._instances.pop(machine_id, None)
        self.orphans.discard(machine_id)
        self._forget_memory(machine_id)

    def _forget_memory(self, machine_id: MachineId) -> None:
        self.memories.discard(machine_id)
        self.spoilt.discard(machine_id)

    def lose_directory(self, machine_id: MachineId) -> None:
        """The instance goes on, and nobody can find it or talk to it any more."""
        if self._instances.pop(machine_id, None) is not None:
            self.orphans.add(machine_id)

    def machines(self) -> list[MachineId]:
        return sorted(self._instances)

    def fault(self, call: str) -> FakeFault:
        waiting = self._faults.get(call)
        return waiting.pop(0) if waiting else FakeFault()

    def _ignored(self, instance: Instance, number: int) -> bool:
        stubborn = number != signal.SIGKILL and instance.spec.machine_id in self.stubborn
        return stubborn or number in _HARMLESS

    def _killed(self, number: int, process: int) -> Exit:
        now = self.clock.now()
        return Exit(exit_code=_SIGNALLED + number, signal=number, exited_at=now, process=process)

    def _note(self, instance: Instance, exit: Exit) -> None:
        """A process has ended, and maybe the instance with it."""
        instance.processes[exit.process].end(exit)
        if instance.stopping or instance.spec.ends is Ends.FIRST:
            self._settle(instance, exit)
        else:
            self._tell(instance)

    def _settle(self, instance: Instance, exit: Exit) -> None:
        if instance.exit is not None:
            return
        instance.phase, instance.exit = Phase.EXITED, exit
        if instance.processes[exit.process].running:
            instance.processes[exit.process].end(exit)
        for process in instance.running:
            process.end(self._killed(signal.SIGKILL, process.index))
        instance.ended.set()
        self._tell(instance)

    def _tell(self, instance: Instance) -> None:
        instance.changed.set()
        instance.changed = anyio.Event()


def _moment(exit: Exit) -> float:
    return exit.exited_at


def contents(files: Iterable[FileSpec]) -> dict[str, bytes]:
    """What they hold, by path."""
    return {file.path: Path(file.source).read_bytes() if file.source else file.content for file in files}
