"""The fake driver's host: it holds the instances and outlives a driver, as a host outlives a daemon. Time passes only
as the clock says. Tests `script` faults of the driver's calls, and `end` an instance from outside.

Nothing is executed; a guest's program is what a command would write, how long it runs, how it ends. Understood: echo,
printf, sleep, exit, true, false, cat, env, the same as words of the sample program, and `sh -c` with these joined by
`;` or `&&`, `>&2` and `$NAME`. A command in `MISSING` does not exist. Whatever else runs until it is stopped.
"""

import math
import re
import shlex
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.ids import MachineId
from hawker.runtime.driver import ALIVE, Exit, LostPart, OutputChunk, Phase, ProcessPhase, ProcessState
from hawker.runtime.saved_memory import SavedBy
from hawker.runtime.spec import Ends, FileSpec, InstanceSpec, ProcessSpec
from hawker.value_object import ValueObject

MISSING = frozenset({"/nope", "/no/such/program", "/does/not/exist", "nope", "no-such-program"})
_SHELLS = frozenset({"sh", "bash", "ash"})
_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_NOT_FOUND = 127
_SIGNALLED = 128


class Script(ValueObject, frozen=True):
    """`output` is pieces, each of stream 1 (stdout) or 2. It runs for `runs_s` seconds, infinite for a server, and ends
    with `code`, 0 to 255. `missing`: why it could not be executed. `echoes`: it writes what it reads, to the end."""

    output: tuple[tuple[int, bytes], ...] = ()
    runs_s: float = 0.0
    code: int = 0
    missing: str = ""
    echoes: bool = False


class _Place(ValueObject, frozen=True):
    """What a command finds around it."""

    env: Mapping[str, str]
    files: Mapping[str, bytes]


def read_command(argv: Sequence[str], env: Mapping[str, str], files: Mapping[str, bytes] | None = None) -> Script:
    """The script of a whole command line in a machine with these files, which `cat` shows."""
    place = _Place(env, files or {})
    name = argv[0].rsplit("/", 1)[-1]
    if argv[0] in MISSING:
        return Script(code=_NOT_FOUND, missing=f"exec {argv[0]}: no such file or directory")
    if name in _SHELLS and len(argv) > 2 and argv[1].lstrip("-").endswith("c"):
        return _read_shell(argv[2], place)
    return _simple(name, argv[1:], place)


def _read_shell(text: str, place: _Place) -> Script:
    """Commands in order; `exit` and a server end the list, and a failure ends what `&&` joins to it."""
    whole = Script()
    for part in re.split(r"\s*(;|&&|\n)\s*", text):
        if part == "&&" and whole.code != 0:
            return whole
        words = _words(part, place.env)
        if part in ("", ";", "&&", "\n") or not words:
            continue
        step = _simple(words[0].rsplit("/", 1)[-1], words[1:], place)
        whole = replace(
            step,
            output=whole.output + step.output,
            runs_s=whole.runs_s + step.runs_s,
            echoes=whole.echoes or step.echoes,
        )
        if words[0] == "exit" or math.isinf(step.runs_s):
            return whole
    return whole


def _words(part: str, env: Mapping[str, str]) -> list[str]:
    """`exec` is dropped: what follows takes the shell's place."""
    filled = _NAME.sub(lambda match: env.get(match[1] or match[2], ""), part)
    words = shlex.split(filled)
    return words[1:] if words[:1] == ["exec"] else words


def _simple(name: str, arguments: Sequence[str], place: _Place) -> Script:
    match name:
        case "echo" | "printf":
            return _print(arguments, newline=name == "echo")
        case "sleep":
            return Script(runs_s=sum(math.inf if word == "infinity" else float(word) for word in arguments))
        case "exit":
            return Script(code=int(arguments[0]) if arguments else 0)
        case "true" | "false":
            return Script(code=int(name == "false"))
        case "env":
            return Script(output=((1, "".join(f"{key}={value}\n" for key, value in place.env.items()).encode()),))
        case "cat" if not arguments:
            return Script(runs_s=math.inf, echoes=True)
        case "cat":
            return Script(output=tuple((1, place.files[path]) for path in arguments if path in place.files))
        case "hello" if arguments and not arguments[0].isdecimal():
            return _simple(arguments[0], arguments[1:], place)
        case _:
            return Script(runs_s=math.inf)


def _print(words: Sequence[str], *, newline: bool) -> Script:
    stream = 2 if ">&2" in words else 1
    text = " ".join(word for word in words if word != ">&2")
    return Script(output=((stream, (text + "\n" if newline else text.replace("\\n", "\n")).encode()),))


class FakeExecSession:
    """A command beside a workload. Its output is known from the start; a command that echoes ends with its input."""

    def __init__(self, clock: Clock, script: Script) -> None:
        self._clock = clock
        self._script = script
        self._input: list[bytes] = []
        self._done = anyio.Event()
        self._signal = 0
        if script.missing or math.isfinite(script.runs_s):
            self._done.set()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        for piece in self._script.output:
            yield piece
        await self._done.wait()
        for data in self._input:
            yield 1, data

    async def send(self, data: bytes) -> None:
        if self._script.echoes and not self._done.is_set():
            self._input.append(data)

    async def send_eof(self) -> None:
        if self._script.echoes:
            self._done.set()

    async def resize(self, rows: int, cols: int) -> None:
        """Does nothing: there is no terminal."""

    async def signal(self, signal: int) -> None:
        if not self._done.is_set():
            self._signal = signal
            self._done.set()

    async def wait(self) -> Exit:
        await self._done.wait()
        script = self._script
        if math.isfinite(script.runs_s):
            await self._clock.sleep(script.runs_s)
        code = _SIGNALLED + self._signal if self._signal else script.code
        return Exit(exit_code=code, signal=self._signal, exited_at=self._clock.now(), reason=script.missing)

    async def close(self) -> None:
        await self.signal(signal.SIGHUP)


def at_most(chunks: Iterable[OutputChunk], limit: int) -> list[OutputChunk]:
    taken: list[OutputChunk] = []
    size = 0
    for chunk in chunks:
        size += len(chunk.data)
        if taken and size > limit:
            break
        taken.append(chunk)
    return taken


def last_lines(chunks: list[OutputChunk], tail: int | None) -> list[OutputChunk]:
    """The chunks that hold the last `tail` lines; the first of them is cut to size."""
    if tail is None:
        return chunks
    kept: list[OutputChunk] = []
    for chunk in reversed(chunks):
        if tail <= 0:
            break
        lines = chunk.data.splitlines(keepends=True)
        kept.append(replace(chunk, data=b"".join(lines[-tail:])))
        tail -= len(lines)
    return kept[::-1]


_FIRST_PID_INSIDE = 2  # inside its machine; 1 is the pilot
_FIRST_PID = 1000
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
        """Begin the next run. A script that is `missing` must be ended by the caller."""
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
    """A fault of the next call of one kind: wait `delay_s`, then raise `error` before the call's effect, or after it
    when `after`. An `error` that is no `Exception` plays the daemon's death."""

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
        """The time at which the next process ends by itself; infinite while none does, or all are held still."""
        if self.phase is Phase.SUSPENDED:
            return math.inf
        return min((process.ends_at for process in self.processes if process.running), default=math.inf)

    @property
    def running(self) -> list[FakeProcess]:
        return [process for process in self.processes if process.running]


HEAP_BITS = 20
"""The low bits of a memory's number that count the writes of its instance; those above are when it began, in ms."""


class FakeHost:
    """A host in memory: its instances, by machine."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stubborn: set[MachineId] = set()  # these ignore every signal but SIGKILL
        self.orphans: set[MachineId] = set()  # these have a pilot that lost its directory
        self.worn: dict[MachineId, set[LostPart]] = {}  # what running instances have lost
        self.used: dict[MachineId, int] = {}  # MiB that instances need; 1 unless told
        self.cached: dict[MachineId, int] = {}  # MiB that they could do without
        self.memories: set[MachineId] = set()  # these have a snapshot of their memory on the host
        self.spoilt: set[MachineId] = set()  # and it cannot be used
        self.heaps: dict[MachineId, int] = {}  # what instances have in memory, see `HEAP_BITS`
        self.arrived: dict[MachineId, int] = {}  # the same, of memories that came from another host
        self.saved_by = SavedBy(vmm="fake 1", cpu_model="model 1")
        self.volume_sizes: dict[tuple[MachineId, str], int] = {}  # bytes, as guests were told
        self.trimmed: dict[tuple[MachineId, str], int] = {}  # up to which byte
        self.still: set[tuple[MachineId, str]] = set()  # volumes that a guest holds still
        self._instances: dict[MachineId, Instance] = {}
        self._faults: dict[str, list[FakeFault]] = {}
        self._last_pid = _FIRST_PID

    def script(self, call: str, *faults: FakeFault) -> None:
        """Give the next calls of the driver's method `call` these faults, one to each call."""
        self._faults.setdefault(call, []).extend(faults)

    def end(
        self, machine_id: MachineId, code: int = 0, *, signal: int = 0, oom_killed: bool = False, fault: str = ""
    ) -> None:
        """End the running instance now, whether a daemon watches or not."""
        instance = self.look(machine_id)
        if instance is not None and instance.phase is Phase.RUNNING:
            now = self.clock.now()
            exit = Exit(exit_code=code, signal=signal, oom_killed=oom_killed, exited_at=now, fault=fault)
            self._settle(instance, exit)

    def signals(self, machine_id: MachineId) -> list[int]:
        """Every signal that the current instance was sent, in order."""
        instance = self.look(machine_id)
        return [] if instance is None else instance.signals

    def end_process(
        self, machine_id: MachineId, index: int, code: int = 0, *, signal: int = 0, oom_killed: bool = False
    ) -> None:
        """End one process now, whether a daemon watches or not."""
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
        self.heaps[instance.spec.machine_id] = int(self.clock.now() * 1000) << HEAP_BITS
        for process in instance.processes:
            if not process.spec.held and instance.phase is Phase.RUNNING:
                self.begin(instance, process.index)

    def _next_pid(self) -> int:
        self._last_pid += 1
        return self._last_pid

    def begin(self, instance: Instance, index: int) -> None:
        """Begin the next run of one process."""
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
        """Hold the instance still; with `saves` by a snapshot of its memory, and no process is left."""
        if instance.phase is Phase.RUNNING and saves:
            self.memories.add(instance.spec.machine_id)
            instance.pid = None
        instance.phase = Phase.SUSPENDED
        self._tell(instance)

    def set_aside(self, machine_id: MachineId) -> tuple[Instance, int] | None:
        """Take a suspended instance and its memory away, until `put_back`; None where there is no memory."""
        if machine_id not in self.memories:
            return None
        self._forget_memory(machine_id)
        return self._instances.pop(machine_id), self.heaps.pop(machine_id)

    def put_back(self, instance: Instance, heap: int) -> None:
        machine_id, instance.phase = instance.spec.machine_id, Phase.SUSPENDED
        self._instances[machine_id], self.heaps[machine_id] = instance, heap
        self.memories.add(machine_id)

    def lose(self, instance: Instance, exit: Exit) -> None:
        """End a suspended instance, with its memory."""
        self.memories.discard(instance.spec.machine_id)
        self.spoilt.discard(instance.spec.machine_id)
        self._settle(instance, exit)

    def resume(self, instance: Instance) -> None:
        """Let the instance go on; processes that would have ended meanwhile end now."""
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
        """Lose the machine's directory: the instance goes on, and nobody can find it or talk to it any more."""
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
    """The content of each file, by its path."""
    return {file.path: Path(file.source).read_bytes() if file.source else file.content for file in files}
