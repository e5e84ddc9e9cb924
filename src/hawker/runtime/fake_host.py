"""The fake driver's machine room: it holds the instances and outlives a driver, as a host outlives a daemon.

Time passes only as the clock says: what is due is settled whenever somebody looks. Tests `script` faults of the
driver's calls, and `end` an instance from outside.
"""

import math
import signal
from dataclasses import dataclass, field

import anyio

from hawker.clock import Clock
from hawker.ids import MachineId
from hawker.runtime.driver import Exit, InstanceSpec, OutputChunk, Part, Phase
from hawker.runtime.fake_program import Script, read_command

_FIRST_PID = 1000
_SIGNALLED = 128
_HARMLESS = (signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at the next call of one kind: wait `delay_s`, then raise `error` before the call's effect, or after
    it when `after`. An `error` that is no `Exception` plays the daemon's death."""

    error: BaseException | None = None
    after: bool = False
    delay_s: float = 0.0


@dataclass(slots=True)
class Instance:
    """One incarnation on the fake host. `ended` is set with `exit`."""

    spec: InstanceSpec
    phase: Phase = Phase.PREPARED
    pid: int | None = None
    started_at: float | None = None
    ends_at: float = math.inf
    exit: Exit | None = None
    chunks: list[OutputChunk] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    ended: anyio.Event = field(default_factory=anyio.Event)
    scripts: tuple[Script, ...] = ()


class FakeHost:
    """Instances, by machine."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stubborn: set[MachineId] = set()  # these ignore every signal but SIGKILL
        self.loose: set[MachineId] = set()  # these have a pilot that lost its directory
        self.worn: dict[MachineId, set[Part]] = {}  # what running instances have lost
        self._instances: dict[MachineId, Instance] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._last_pid = _FIRST_PID

    def script(self, call: str, *faults: Fault) -> None:
        """What befalls the next calls of the driver's method `call`, one each."""
        self._faults.setdefault(call, []).extend(faults)

    def end(self, machine_id: MachineId, code: int = 0, *, signal: int = 0, oom_killed: bool = False) -> None:
        """The running instance ends now, whether a daemon watches or not."""
        instance = self.look(machine_id)
        if instance is not None and instance.phase is Phase.RUNNING:
            self._settle(instance, self.clock.now(), code, signal=signal, oom_killed=oom_killed)

    def signals(self, machine_id: MachineId) -> list[int]:
        """Every signal that the current instance was sent."""
        instance = self.look(machine_id)
        return [] if instance is None else instance.signals

    def look(self, machine_id: MachineId) -> Instance | None:
        instance = self._instances.get(machine_id)
        if instance is not None and instance.phase is Phase.RUNNING and instance.ends_at <= self.clock.now():
            first = min(range(len(instance.scripts)), key=lambda index: instance.scripts[index].runs_s)
            self._settle(instance, instance.ends_at, instance.scripts[first].code, process=first)
        return instance

    def place(self, spec: InstanceSpec) -> Instance:
        """Make the instance's place; drops an earlier one of the machine."""
        self.worn.pop(spec.machine_id, None)
        self.loose.discard(spec.machine_id)
        self._instances[spec.machine_id] = instance = Instance(spec)
        return instance

    def launch(self, instance: Instance) -> None:
        """Start the workload; a command that does not exist ends the instance with the reason."""
        now, spec = self.clock.now(), instance.spec
        files = contents(spec)
        instance.scripts = tuple(read_command(process.argv, process.env, files) for process in spec.processes)
        self._last_pid += 1
        instance.pid, instance.started_at, instance.phase = self._last_pid, now, Phase.RUNNING
        for index, script in enumerate(instance.scripts):
            if script.missing:
                return self._settle(instance, now, script.code, process=index, reason=script.missing)
            for stream, data in script.output:
                instance.chunks.append(OutputChunk(len(instance.chunks), now, stream, index, data))
        instance.ends_at = now + min(script.runs_s for script in instance.scripts)

    def deliver(self, instance: Instance, number: int) -> None:
        instance.signals.append(number)
        ignored = number != signal.SIGKILL and instance.spec.machine_id in self.stubborn
        if not ignored and number not in _HARMLESS:
            self._settle(instance, self.clock.now(), _SIGNALLED + number, signal=number)

    def remove(self, machine_id: MachineId) -> None:
        instance = self.look(machine_id)
        if instance is not None and instance.phase is Phase.RUNNING:
            self.deliver(instance, signal.SIGKILL)
        self._instances.pop(machine_id, None)
        self.loose.discard(machine_id)

    def lose_directory(self, machine_id: MachineId) -> None:
        """The instance goes on, and nobody can find it or talk to it any more."""
        if self._instances.pop(machine_id, None) is not None:
            self.loose.add(machine_id)

    def machines(self) -> list[MachineId]:
        return sorted(self._instances)

    def fault(self, call: str) -> Fault:
        waiting = self._faults.get(call)
        return waiting.pop(0) if waiting else Fault()

    def _settle(
        self,
        instance: Instance,
        at: float,
        code: int,
        *,
        signal: int = 0,
        oom_killed: bool = False,
        process: int = 0,
        reason: str = "",
    ) -> None:
        instance.phase, instance.ends_at = Phase.EXITED, at
        instance.exit = Exit(
            exit_code=code, signal=signal, oom_killed=oom_killed, exited_at=at, process=process, reason=reason
        )
        instance.ended.set()


def contents(spec: InstanceSpec) -> dict[str, bytes]:
    """What the machine's files hold, by path."""
    return {file.path: file.content for file in spec.files}
