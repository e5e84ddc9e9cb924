"""The contract that every driver keeps: run one machine's instance with one technology; and what each refuses.

Crash rules, tested by one suite for the fake and the real ones:
1. Every call is idempotent: the same call again, from a new daemon that remembers only the `InstanceSpec`, completes
   what the first one began, and never makes a second instance.
2. An instance outlives the daemon: `recover` finds it by machine id alone, running, exited (with its exit) or gone.
3. An exit is kept on the host until `destroy` or the next `prepare`; nothing is lost while no daemon watches.
4. `destroy` leaves no process, cgroup, socket or file of the instance, whatever half-made state it finds.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from enum import Enum, StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from hawker.errors import BadRequest, NotServed, WrongState
from hawker.ids import InstanceId, MachineId
from hawker.runtime.spec import InstanceSpec, ProcessSpec
from hawker.value_object import ValueObject


class VolumeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a mounted file system, as the guest says: not to be believed in anything that matters."""

    block_size: int  # bytes
    blocks: int  # of the whole file system
    blocks_free: int
    """Free blocks, of all blocks: 0 to `blocks`."""
    blocks_avail: int  # free for users other than root


@runtime_checkable
class GuestVolumes(Protocol):
    """The calls for volumes that only a running guest can carry out."""

    async def grow_volume(self, machine_id: MachineId, name: str, size_bytes: int) -> None:
        """Let the volume's device, and then its file system, have the size that the volume's file has now,
        `size_bytes`. May be repeated; no change to a volume that is as large."""

    def freeze_volume(self, machine_id: MachineId, name: str, timeout_s: float) -> AbstractAsyncContextManager[None]:
        """Within the block all written data is in the file, and nothing more is written: a process that tries waits.
        The guest lets go after `timeout_s` seconds by itself, or when this process is gone; then the block's end raises
        `Unavailable`, for the copy may be of several moments."""

    async def volume_usage(self, machine_id: MachineId, name: str) -> VolumeUsage:
        """The blocks of the volume's file system, all and free, now."""

    async def trim_volume(self, machine_id: MachineId, name: str, start: int, count: int) -> None:
        """Free the room that the volume's file takes for the bytes from `start` on, `count` of them, that its file
        system does not use, where its device drops anything; with no `name` the file of the root filesystem that the
        machine keeps."""


class LostPart(StrEnum):
    """A part that a running instance can lose on the host without ending."""

    CGROUP = "control group"
    RUNTIME_STATE = "runtime state"


class Phase(Enum):
    """The phase of a machine's instance, as the host has it."""

    ABSENT = "absent"  # nothing of it on the host
    PREPARED = "prepared"
    RUNNING = "running"
    SUSPENDED = "suspended"
    EXITED = "exited"


ALIVE = frozenset({Phase.RUNNING, Phase.SUSPENDED})
"""The phases in which there is an instance that has not ended."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an instance, or of one run of a process."""

    exit_code: int  # 0 to 255; 128 + signal when a signal ended it
    signal: int = 0  # 1 to 64; 0 when it exited by itself
    oom_killed: bool = False  # the memory limit ended it
    exited_at: float  # Unix seconds
    process: int = 0  # index of the process whose end it is: for an instance, the one that ended first
    reason: str = ""  # set when the workload never started: "exec: no such file or directory: /nope"
    fault: str = ""  # set when not the workload ended it: "kernel panic: ...", "the VMM was ended by SIGSEGV"


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a machine's instance on the host now."""

    phase: Phase
    instance_id: InstanceId | None = None  # None when ABSENT
    pid: int | None = None  # process 1 of the instance as the host sees it; None when no process of it is there
    started_at: float | None = None  # Unix seconds; None until the workload was executed
    exit: Exit | None = None  # when EXITED


class ProcessPhase(StrEnum):
    """The phase of one process of a machine."""

    HELD = "held"  # it never ran
    STARTING = "starting"  # begun, and not yet known whether it can be executed
    RUNNING = "running"
    EXITED = "exited"


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one process of a machine; states are in the order of the processes in the spec."""

    name: str = ""  # the container's; "" for a process that is none
    state: ProcessPhase = ProcessPhase.HELD
    run: int = 0  # counts its runs from 1; 0 before the first
    pid: int | None = None  # the machine's own number; None unless it runs
    started_at: float | None = None  # of run number `run`, in Unix seconds
    last_exit: Exit | None = None  # of the latest run that has ended: this one or the one before

    @property
    def exit(self) -> Exit | None:
        """The exit of run number `run`; None while it goes on, and before the first."""
        return self.last_exit if self.state is ProcessPhase.EXITED else None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that an instance uses."""

    cpu_s: float  # cpu time since the start
    memory_bytes: int  # now
    pids: int  # processes and threads now
    # None below: this technology, or this kernel, does not count it
    working_set_bytes: int | None = None  # memory less the files' pages that the kernel would drop first
    memory_limit_bytes: int | None = None
    """The most bytes of memory that it may use."""
    oom_kills: int | None = None  # processes that the memory limit ended
    throttled_s: float | None = None  # how long it was held back for having used its cpu
    read_bytes: int | None = None  # from disks, since the start
    written_bytes: int | None = None
    """Bytes written to disks, since the start."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of an instance."""

    limit_mib: int  # MiB; what the kernel enforces
    available_mib: int  # MiB of it that the instance could still use; caches count as usable


class ProcessSocket(msgspec.Struct, frozen=True, kw_only=True):
    """The address at which a process accepts connections."""

    proto: str  # "tcp" or "tcp6"
    address: str  # "[::]:8080"


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process inside a machine, by the machine's own numbers. A guest may say anything of its own."""

    pid: int
    """The process id inside the machine, 1 or more."""
    started_at: float  # Unix seconds
    command: str
    """Its command line, words joined by spaces."""
    cwd: str
    """Its working directory, absolute inside the machine."""
    cpu_s: float  # cpu time since its start
    rss_bytes: int  # memory now
    sockets: tuple[ProcessSocket, ...] = ()
    container: str = ""  # the container's name, where it can be told


class CopyDirection(StrEnum):
    """The direction of a copy of files: in the copy stream of guest/PROTOCOL.md."""

    OUT = "out"  # `ExecSpec.argv` is the path; the stream is the command's output
    IN = "in"  # `ExecSpec.argv` is where to, under which name, and "owners" or ""; the stream is its input


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run beside the workload. It runs in the root filesystem of process number `process`, whether that
    runs or not; unset user, cwd and env follow it too."""

    argv: tuple[str, ...]  # an empty one is refused; with `env` it takes less than 64 KiB
    env: dict[str, str] = {}  # laid over the process's own
    user: str | None = None  # as `ProcessSpec.user`
    cwd: str | None = None  # absolute, inside
    tty: bool = False  # it has a terminal of `rows` and `cols`
    rows: int = 24
    """The height of its terminal in lines, 1 or more."""
    cols: int = 80
    """The width of its terminal in characters, 1 or more."""
    process: int = 0
    copy: CopyDirection | None = None  # no command of the machine's, but a copy of files as its root user


class ExecSession(Protocol):
    """A running command. Leaving it open costs one channel; `close` ends the command with SIGHUP, then SIGKILL."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """The pieces of output: (1 for stdout or terminal, 2 for stderr, bytes), until both are closed. Slow readers
        slow the command."""

    async def send(self, data: bytes) -> None:
        """Write to its input; waits while the command reads more slowly. Bytes that come after its end are dropped."""

    async def send_eof(self) -> None: ...
    async def resize(self, rows: int, cols: int) -> None: ...
    async def signal(self, signal: int) -> None: ...

    async def wait(self) -> Exit:
        """The exit of the command, once it has ended. Raises `Unavailable` when contact was lost before that."""

    async def close(self) -> None: ...


class Attachment(ExecSession, Protocol):
    """A client at a process of the machine. `close` leaves it running."""

    async def position(self) -> int:
        """The position of the first output that comes here: earlier output is in `Driver.output`. Raises `WrongState`
        when nobody can attach to the process now, `Unavailable` when contact was lost."""


class Suspension(StrEnum):
    """The way in which a technology suspends a machine."""

    FREEZE = "freeze"  # its processes are held still and stay in memory; gone after a reboot of the host
    SNAPSHOT = "snapshot"  # its memory is written to a file, and it holds none; there after a reboot of the host


class Features(ValueObject, frozen=True):
    """The features of a technology; the API refuses calls that need a missing one."""

    rootfs: bool  # machines have a root filesystem of their own
    network: bool  # machines have a network of their own
    limits: bool  # `InstanceLimits` are enforced
    suspend: Suspension | None = None  # None: it cannot suspend
    kernel: bool = False  # each machine has a kernel of its own
    lacks_swap: str = "its machines have no limits"  # why machines cannot have swap here, "" where they can
    driver: str = "fake"  # its name, for refusals
    containers: bool = False  # processes with root filesystems of their own
    mounts: bool = False  # directories of the host are seen inside
    disks: bool = False  # with a kernel of its own: root filesystem and volumes are block files; see `guest_volumes`
    gpus: bool = False  # devices of the host can be given to machines
    user_namespace: bool = False  # each machine can have users and groups of the host that are its own
    lacks_user_namespace: str = ""  # why not, where it should
    overhead_mib: int = 0  # MiB of memory that each machine needs at the most beside its limit
    output_in_memory: bool = False  # `output` touches no file, and belongs into the event loop


class OutputChunk(ValueObject, frozen=True):
    """A piece of a machine's output."""

    position: int  # 0, 1, 2, ... in the order of writing: orders and resumes
    at: float  # Unix seconds
    stream: int  # 1 stdout or terminal, 2 stderr
    process: int  # index of the process that wrote it
    data: bytes
    """Bytes as they were written; a line may go on in the next piece."""


class Driver(Protocol):
    """The calls of one technology for the instances of this host. Calls about a machine raise `NotFound` when it has no
    instance, `WrongState` when its instance is not in a state for the call."""

    name: str  # "container", "process", "qemu", ...: as the operator chooses it
    features: Features

    async def check(self) -> None:
        """Raise `CannotStart` with one line that says what to do if this host cannot run this driver."""

    async def prepare(self, spec: InstanceSpec) -> None:
        """Make the instance's files on the host; drops the files of an earlier, exited instance of the machine. No
        change when this instance is prepared. Raises `WrongState` while an earlier instance runs, `BadRequest` and
        `NotServed` for a spec that cannot be run here, `Unavailable` when the host lacks something for now."""

    async def start(self, spec: InstanceSpec) -> Inspection:
        """Start the instance. It is running when this returns, with the workload's exec done; or EXITED with an
        `Exit.reason` when it could not be executed. No change for an instance that runs. Raises as `prepare`, and
        `WrongState` for a suspended instance."""

    async def recover(self, machine_id: MachineId) -> Inspection:
        """Take up the instance again after a daemon restart. Returns its state on the host, as `inspect` says it."""

    async def wait(self, machine_id: MachineId) -> Exit:
        """Return the exit when the instance has exited; at once when it already has. Raises `NotFound` when there is
        none."""

    async def stop(self, machine_id: MachineId, signal: str, timeout_s: float) -> Exit:
        """Signal the workload, wait up to `timeout_s`, then SIGKILL everything. An instance that has ended keeps its
        exit. Raises `BadRequest` for no signal, `NotFound` when there is no instance."""

    async def suspend(self, machine_id: MachineId) -> None:
        """Hold a running instance still until `resume`, `stop` or `destroy`, whichever daemon watches; no call ever
        waits for it. It is SUSPENDED when this returns, and goes on when this raises. No change when it is suspended.
        Raises `WrongState` when it has ended, `NotFound` when there is none, `NotServed` without the feature. With
        `Suspension.SNAPSHOT` no process of it is left; `inspect` has no pid."""

    async def resume(self, machine_id: MachineId) -> None:
        """Let a suspended instance go on where it was held. No change when it runs; raises as `suspend`. Raises
        `SnapshotLost` when its snapshot cannot be used: the instance has then ended, with an exit whose `fault` says
        why."""

    async def signal(self, machine_id: MachineId, signal: int) -> None:
        """Send a signal, 1 to 64, to the workload. This call and those below raise `WrongState` for a suspended
        instance: it could not answer."""

    async def exec(self, machine_id: MachineId, spec: ExecSpec) -> ExecSession:
        """Begin a command beside the workload. Raises `BadRequest` for no command and for no such process."""

    async def attach(self, machine_id: MachineId, process: int, *, rows: int = 0, cols: int = 0) -> Attachment:
        """Type into a process whose spec has `stdin`, and read its output as it comes. 0 rows and columns leave its
        terminal as it is. Raises `WrongState` for a machine that an older hawker started, and `NotServed` where the
        driver cannot."""

    async def process_states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        """The states of all processes of the spec, in its order; once the instance has exited, as they ended. Raises
        `NotFound` when there is no instance."""

    async def await_process_change(
        self, machine_id: MachineId, seen: tuple[ProcessState, ...]
    ) -> tuple[ProcessState, ...]:
        """Return the states once they differ from `seen`: at once when they do already, or when the instance does not
        run. No change is missed between two calls, though several may come as one."""

    async def start_process(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        """Begin run number `run` of a process: 1 for the first, else one more than the run that ended. A run that was
        begun before is not begun again, so a call may be repeated. Returns with it executed, or exited; when it could
        not be executed that exit has its `reason`, and ends the instance only if any end does. Raises `WrongState`
        when the run before goes on, or was never begun, or the instance does not run; `BadRequest` for no such
        process."""

    async def stop_process(self, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> ProcessState:
        """Signal a process, wait up to `timeout_s`, then SIGKILL it and the processes that it started. A process that
        does not run is left as it is. Returns once it has ended. Raises `BadRequest` for no signal and for no such
        process."""

    async def conclude(self, machine_id: MachineId, index: int) -> Exit:
        """End the instance: the other processes get SIGTERM and, two seconds later, SIGKILL. Its exit is the last one
        of that process. Raises `WrongState` while that process runs or when it never did. An instance that has ended
        stays so."""

    async def inspect(self, machine_id: MachineId) -> Inspection:
        """The state of the instance on the host now; ABSENT when there is no instance."""

    async def stats(self, machine_id: MachineId) -> Stats:
        """The resources that the instance has used so far. Raises `WrongState` when the instance does not run."""

    async def memory(self, machine_id: MachineId) -> Memory:
        """The memory of an instance, suspended or not. Raises `NotServed` without limits, `WrongState` when it has
        ended."""

    async def limit_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        """Set another memory limit in MiB, for as long as this instance lives, also through `mend`. Raises `WrongState`
        and changes nothing when more is in use; no process is ended for it."""

    async def reclaim_memory(self, machine_id: MachineId, amount_mib: int) -> int:
        """Have the instance give back up to `amount_mib` MiB of the memory that it only caches. Returns how many MiB it
        gave back."""

    async def processes(self, machine_id: MachineId) -> tuple[ProcessInfo, ...]:
        """The processes inside, at most 512 of them; drivers without a view of the inside may answer with less. Raises
        `Unavailable` when the inside does not answer, or runs more."""

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        """Recorded output past position `after`, at most the last `tail` lines; never more than 4 MiB at once.
        Readable until `destroy`. Blocks, unless it is in memory."""

    async def destroy(self, machine_id: MachineId) -> None:
        """End the instance and drop all that the driver has of it; nothing there is no error."""


class HostView(Protocol):
    """The machines of one technology on this host, whatever a store says: for the reconciler."""

    async def list(self) -> list[MachineId]:
        """Every machine of which this driver has anything on the host, sorted."""

    async def running(self) -> frozenset[MachineId]:
        """Every machine with a pilot that can be found by its directory, suspended or not."""

    async def suspended(self) -> frozenset[MachineId]:
        """The machines of `running` that are suspended."""

    async def orphans(self) -> frozenset[MachineId]:
        """Every machine with an orphaned pilot: its directory is gone, and nobody can talk to it."""

    async def end_orphans(self, machine_id: MachineId) -> None:
        """End the orphaned pilots of the machine, and nothing else of it. `destroy` and a new launch do so too."""

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[LostPart]]:
        """The parts that these running machines have lost; machines that lack none are left out."""

    async def mend(self, machine_id: MachineId) -> None:
        """Give a running machine back its control group, with its limits and its processes. They go on meanwhile.
        Raises `NotFound` and `WrongState` when it does not run, or is in a snapshot."""


class NodeDriver(Driver, HostView, Protocol):
    """The driver that a node is built with: its instances, and the view of its host."""


MachineDir = Callable[[MachineId], Path]  # where a machine's host-side files live; the driver owns `run/` beneath it


_ROOTS = "/.hawker/containers"
MAX_PROCESSES = 32  # of one machine, containers or not
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def refuse_containers(spec: InstanceSpec, driver: str, features: Features) -> None:
    """Raises `NotServed` for processes that this driver cannot serve, and `BadRequest` for those that no driver can."""
    if not 1 <= len(spec.processes) <= MAX_PROCESSES:
        raise BadRequest(f"a machine has 1 to {MAX_PROCESSES} processes, not {len(spec.processes)}")
    if not features.containers and any(process.root is not None for process in spec.processes):
        raise NotServed(f"the {driver} driver cannot serve `containers`: start the node with the container driver")
    names = [process.name for process in spec.processes if process.name or process.root is not None]
    for process in spec.processes:
        if process.root is None and (process.mounts or process.files):
            raise BadRequest("a process without a root filesystem of its own has no mounts or files of its own")
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadRequest(f"no name of a container: {name!r}")
    if len(set(names)) < len(names):
        raise BadRequest("two containers of a machine have the same name")


def container_root(name: str) -> str:
    """The path of a container's root filesystem inside its machine."""
    return f"{_ROOTS}/{name}"


def process_of(spec: InstanceSpec, index: int) -> ProcessSpec:
    """The process of the spec with this number. Raises `BadRequest` for a number that the machine has no process
    for."""
    if not 0 <= index < len(spec.processes):
        raise BadRequest(f"machine {spec.machine_id} has no process number {index}")
    return spec.processes[index]


def may_begin(machine_id: MachineId, state: ProcessState, run: int) -> bool:
    """Whether run number `run` is the next; False when it has begun already. Raises `WrongState`."""
    if run < 1:
        raise BadRequest("runs count from 1")
    if run <= state.run:
        return False
    if state.state in (ProcessPhase.STARTING, ProcessPhase.RUNNING):
        raise WrongState(f"run {state.run} of {_called(state)} of machine {machine_id} goes on")
    if run > state.run + 1:
        raise WrongState(f"{_called(state)} of machine {machine_id} had {state.run} runs; {run} is not the next")
    return True


def refuse_conclusion(machine_id: MachineId, state: ProcessState) -> None:
    """Raises `WrongState` unless the process has ended."""
    if state.exit is None:
        raise WrongState(f"{_called(state)} of machine {machine_id} is {state.state}, and has not ended")


def _called(state: ProcessState) -> str:
    return f"container {state.name}" if state.name else "a process"
