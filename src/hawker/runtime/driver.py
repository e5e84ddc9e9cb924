"""The contract that every driver keeps: run one machine's instance with one technology.

Crash rules, tested by one suite for the fake and the real ones:
1. Every call is idempotent: the same call again, from a new daemon that remembers only the `InstanceSpec`, completes
   what the first one began, and never makes a second instance.
2. An instance outlives the daemon. `recover` finds it by machine id alone and says whether it runs, has exited (with
   its true exit, once known) or is not there.
3. An exit is kept on the host until `destroy` or the next `prepare`; nothing is lost while no daemon watches.
4. `destroy` leaves no process, cgroup, socket or file of the instance, whatever half-made state it finds.
"""

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from hawker.ids import InstanceId, MachineId


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel enforces. `cpus` is whole cpus; `cpu_weight` is the relative share, 1 to 10000 (cgroup v2)."""

    cpus: int
    cpu_weight: int
    memory_mib: int
    pids: int


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a machine. `argv` is complete; `user` is "", "name", "uid", "name:group" or "uid:gid", looked up
    inside the machine; `cwd` is absolute; `tty` gives it a terminal as stdin, stdout and stderr."""

    argv: tuple[str, ...]
    env: dict[str, str]
    user: str = ""
    cwd: str = "/"
    tty: bool = False


class FileSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the pilot writes inside the machine before the first process starts; parents are made."""

    path: str
    content: bytes
    mode: int = 0o644


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a driver needs to run one instance. Stored with the machine; complete, so that a new daemon can finish
    the start that an old one began. Paths are on the host."""

    machine_id: MachineId
    instance_id: InstanceId
    hostname: str
    processes: tuple[ProcessSpec, ...]
    files: tuple[FileSpec, ...] = ()
    limits: Limits
    rootfs: str | None = None  # a mounted root filesystem; None for drivers without one
    netns: str | None = None  # a bound network namespace file; None: the host's network
    output_bytes: int = 8 << 20  # how much of its output is kept, at the least half of it
    stop_signal: str = "SIGINT"
    stop_timeout_s: float = 5.0


class Part(StrEnum):
    """What a running instance can lose on the host without ending."""

    CGROUP = "control group"
    RUNTIME_STATE = "runtime state"


class Phase(Enum):
    """Where a machine's instance is in its life, as the host has it."""

    ABSENT = "absent"  # nothing of it on the host
    PREPARED = "prepared"
    RUNNING = "running"
    EXITED = "exited"


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How an instance ended. `signal` is 0 when it exited by itself; `exit_code` is 128+signal when it did not.
    `process` is the index of the process that ended first. `exited_at` is Unix seconds."""

    exit_code: int
    signal: int = 0
    oom_killed: bool = False
    exited_at: float
    process: int = 0
    reason: str = ""  # set when the workload never started: "exec: no such file or directory: /nope"


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What is on the host now. `pid` is process 1 of the instance as the host sees it."""

    phase: Phase
    instance_id: InstanceId | None = None
    pid: int | None = None
    started_at: float | None = None
    exit: Exit | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Use so far: cpu in seconds since the start, memory in bytes now, processes now."""

    cpu_s: float
    memory_bytes: int
    pids: int


class ListenSocket(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process accepts connections: `proto` is tcp or tcp6, `address` as in "[::]:8080"."""

    proto: str
    address: str


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process inside a machine, by the machine's own numbers. `started_at` is Unix seconds."""

    pid: int
    started_at: float
    command: str
    cwd: str
    cpu_s: float
    rss_bytes: int
    sockets: tuple[ListenSocket, ...] = ()


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run beside the workload. An empty `argv` is refused. Unset user, cwd and env follow process 0."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    user: str | None = None
    cwd: str | None = None
    tty: bool = False
    rows: int = 24
    cols: int = 80


class ExecSession(Protocol):
    """A running command. Leaving it open costs one channel; `close` ends the command with SIGHUP, then SIGKILL."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """(1 for stdout or terminal, 2 for stderr, bytes), until both are closed. Slow readers slow the command."""

    async def send(self, data: bytes) -> None: ...
    async def send_eof(self) -> None: ...
    async def resize(self, rows: int, cols: int) -> None: ...
    async def signal(self, signal: int) -> None: ...
    async def wait(self) -> Exit: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Features:
    """What the technology can do; the API refuses what it cannot."""

    rootfs: bool
    network: bool
    limits: bool
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of a machine's output. `stream` 1 or 2; `at` is Unix seconds; `position` orders and resumes."""

    position: int
    at: float
    stream: int
    process: int
    data: bytes


class Driver(Protocol):
    """One technology on this host."""

    name: str
    features: Features

    async def check(self) -> None:
        """Raise `CannotStart` with one line that says what to do if this host cannot run this driver."""

    async def prepare(self, spec: InstanceSpec) -> None:
        """Make the instance's files on the host; drops what is left of an earlier, exited instance of the machine."""

    async def start(self, spec: InstanceSpec) -> Inspection:
        """Running when it returns, with the workload's exec done; or EXITED with an `Exit.reason` when it could not be
        executed. Starting what runs is no change."""

    async def recover(self, machine_id: MachineId) -> Inspection:
        """As `inspect`, and takes up watching again after a daemon restart."""

    async def wait(self, machine_id: MachineId) -> Exit:
        """Return when the instance has exited; at once when it already has. Raises `NotFound` when there is none."""

    async def stop(self, machine_id: MachineId, signal: str, timeout_s: float) -> Exit:
        """Signal the workload, wait up to `timeout_s`, then SIGKILL everything."""

    async def signal(self, machine_id: MachineId, signal: int) -> None: ...

    async def exec(self, machine_id: MachineId, spec: ExecSpec) -> ExecSession: ...

    async def inspect(self, machine_id: MachineId) -> Inspection: ...

    async def stats(self, machine_id: MachineId) -> Stats: ...

    async def processes(self, machine_id: MachineId) -> tuple[ProcessInfo, ...]:
        """What runs inside, at most 512 of them; drivers without a view of the inside may answer with less."""

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        """Recorded output past position `after`, at most the last `tail` lines; never more than 4 MiB at once.
        Readable until `destroy`."""

    async def destroy(self, machine_id: MachineId) -> None: ...

    async def list(self) -> list[MachineId]:
        """Every machine of which anything of this driver's is on the host; for the reconciler, as what follows."""

    async def running(self) -> frozenset[MachineId]:
        """Every machine with a pilot that can be found by its directory."""

    async def loose(self) -> frozenset[MachineId]:
        """Every machine with a pilot whose directory is gone: nobody can talk to it."""

    async def end_loose(self, machine_id: MachineId) -> None:
        """End such pilots of the machine, and nothing else of it. `destroy` and a new launch do so too."""

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[Part]]:
        """What these running machines have lost; those that are whole are left out."""

    async def mend(self, machine_id: MachineId) -> None:
        """Give a running machine back its control group, with its limits and its processes. They go on meanwhile."""


MachineDir = Callable[[MachineId], Path]  # where a machine's host-side files live; the driver owns `run/` beneath it
