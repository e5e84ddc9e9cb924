"""Bodies about processes inside a machine: commands to run beside the workload, and what is running."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

import msgspec

from hawker.api.bounds import SHELL_WORDS, TerminalSize
from hawker.api.contract.body import Answer, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.node import LogChunk
from hawker.api.route import NoQuery, Socket, Stream, Tag, Unary
from hawker.errors import DeadlineExceeded, LeaseHeld, NotFound, WrongState
from hawker.permission import Action

_NO_COMMAND = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}


class ExecRequest(Request, frozen=True, kw_only=True):
    """`command` is the argument list; `cmd` the older single string, split as a shell would. `container` names where to
    run it, the first one by default; `machine` is for machines without containers. `timeout` in seconds."""

    rules: ClassVar[Mapping[str, Any]] = {
        "anyOf": [
            {"required": ["command"], "properties": {"command": {"type": "array", "minItems": 1}}},
            {
                "required": ["cmd"],
                "properties": {"cmd": {"type": "string", "pattern": SHELL_WORDS}, "command": _NO_COMMAND},
                "allOf": [{"properties": {"cmd": {"pattern": r"[^\s]"}}}],
            },
        ]
    }

    command: tuple[str, ...] | None = None
    cmd: str | None = None
    container: str | None = None
    machine: bool | None = None
    stdin: str | None = None
    """The text that the command reads as its input, which then ends; absent: the input is empty."""
    timeout: int | None = None


class ExecAnswer(Answer, frozen=True, kw_only=True):
    """Output that is not UTF-8 has replacement characters in it."""

    exit_code: int
    """The command's exit code, 0 to 255; 128 and the signal's number where a signal ended it."""
    exit_signal: int
    """The number of the signal that ended the command; 0 for none."""
    stdout: str
    """The command's output, at most 1 MiB; the rest is dropped."""
    stderr: str
    """The command's error output, at most 1 MiB; the rest is dropped."""


class ListenSocket(Answer, frozen=True, kw_only=True):
    proto: str
    """The protocol of the socket, as the machine tells it: `tcp` or `tcp6`."""
    address: str
    """The address and port in the machine where the process takes connections, such as `[::]:8080`."""


class ProcessStat(Answer, frozen=True, kw_only=True):
    """`stime` and `rtime` are seconds of processor time and since the start; `cpu` percent, `rss` bytes; `container`
    the name of the container that it is in, where that can be told."""

    pid: int
    """The number of the process in the machine, 1 or more."""
    stime: int
    rtime: int
    command: str
    """The arguments of the process with blanks between them, as it has them now."""
    directory: str
    """The working directory of the process in the machine; empty where it is not known."""
    cpu: int
    rss: int
    listen_sockets: tuple[ListenSocket, ...]
    container: str = ""


class MachineStats(Answer, frozen=True, kw_only=True):
    """The resources that a machine uses, counted since its start; memory and the number of processes and threads,
    `pids`, are as they are now. `working_set_bytes` is memory without what the kernel can drop at once. null: this
    driver, or the host's kernel, does not count it."""

    at: datetime
    cpus: float | None
    """How many cpus the machine's config asks for, shared or dedicated."""
    cpu_seconds: float
    """Seconds of cpu time that the machine used, on all its cpus together."""
    throttled_seconds: float | None
    """Seconds for which the kernel held the machine back, because it had used its cpu."""
    memory_bytes: int
    """Bytes of memory that the machine uses, with pages of files that the kernel could drop."""
    working_set_bytes: int | None
    memory_limit_bytes: int | None
    """The most bytes of memory that the machine may use now."""
    oom_kills: int | None
    """How many processes the kernel ended because the machine's memory ran out, 0 or more."""
    pids: int
    disk_read_bytes: int | None
    """Bytes that the machine read from the host's disks."""
    disk_written_bytes: int | None
    """Bytes that the machine wrote to the host's disks."""
    network_received_bytes: int | None
    """Bytes that the machine's network link received since it was made."""
    network_sent_bytes: int | None
    """Bytes that the machine's network link sent since it was made."""


# Messages of an exec session over a WebSocket: JSON text frames, one message each, bytes as base64. The client
# sends `TerminalRequest`, then any `TerminalInput`; the node sends any `TerminalOutput`, last `Exited`, or `Failed`
# (in `problem`) where something else ended it.


class TerminalRequest(Request, frozen=True, kw_only=True):
    """A command that runs in a machine, in its `container`, the first one by default. Absent `user` and `cwd` are those
    of the machine's process there. `rows` and `cols`, the size of the terminal, matter with a `tty`."""

    command: tuple[str, ...]
    """The program to run and its arguments; an empty list is refused."""
    tty: bool = False
    rows: TerminalSize = 24
    cols: TerminalSize = 80
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables of the command, by name, beside those that the machine has."""
    user: str | None = None
    cwd: str | None = None
    container: str | None = None


class AttachRequest(Request, frozen=True, kw_only=True):
    """A connection to the machine's own process, whose config has `init.stdin`. `rows` and `cols` are the size of its
    terminal; 0 leaves it as it is."""

    rows: TerminalSize = 0
    cols: TerminalSize = 0


class CopyRequest(Request, frozen=True, kw_only=True):
    """Files between the client and `container`, the first one by default, as the copy stream of guest/PROTOCOL.md.
    `out`: `path` of the machine comes as output 1. `in`: the client's input goes to `path`, into it as `name` where it
    is a directory; with `owners` files keep the user and group ids that the stream names. Output 2 is for errors."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4095)]
    direction: Literal["in", "out"]
    name: Annotated[str, msgspec.Meta(max_length=255)] = ""
    owners: bool = False
    container: str | None = None


class Input(Request, frozen=True, kw_only=True, tag_field="type", tag="input"):
    data: bytes
    """Bytes for the command's input, as base64."""


class InputEnd(Request, frozen=True, kw_only=True, tag_field="type", tag="input_end"):
    pass


class Resize(Request, frozen=True, kw_only=True, tag_field="type", tag="resize"):
    rows: TerminalSize
    """The new height of the terminal in lines, 1 or more."""
    cols: TerminalSize
    """The new width of the terminal in characters, 1 or more."""


class SendSignal(Request, frozen=True, kw_only=True, tag_field="type", tag="signal"):
    signal: str | int
    """The signal that the command gets: its name or its number."""


TerminalInput: TypeAlias = Input | InputEnd | Resize | SendSignal


class Output(Answer, frozen=True, kw_only=True, tag_field="type", tag="output"):
    """`stream` is 1 for stdout or the terminal, 2 for stderr."""

    stream: int
    data: bytes
    """Bytes of the output, as base64."""


class Exited(Answer, frozen=True, kw_only=True, tag_field="type", tag="exited"):
    """`exit_code` is 128 + `signal` when a signal ended the command."""

    exit_code: int
    signal: int
    oom_killed: bool = False
    """True when the kernel ended the command because memory ran out."""
    reason: str = ""
    """The reason why the command could not be executed; empty for a command that was."""


TerminalOutput: TypeAlias = Output | Exited


# Calls into a running machine: commands, processes, output.


class ProcessesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`sort_by` is the field of the answer by which it is sorted; `order` is asc or desc."""

    sort_by: Literal["pid", "stime", "rtime", "command", "directory", "cpu", "rss"] | None = None
    order: Literal["asc", "desc"] | None = None


class LogsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is a position of `instance`: the answer begins behind it, or has all of a newer instance. `since` is a
    moment in Unix seconds: older output is left out. Of the rest come at most the last `tail` lines; with `follow` the
    answer goes on with what comes."""

    follow: bool = False
    tail: Annotated[int, msgspec.Meta(ge=0)] | None = None
    after: int | None = None
    since: float | None = None
    instance: str | None = None


EXEC_MACHINE = Unary(
    name="exec_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/exec",
    params=MachineParams,
    body=ExecRequest,
    response=ExecAnswer,
    tag=Tag.MACHINES,
    summary="Run a command in a machine and answer with its output",
    errors=(NotFound, WrongState, LeaseHeld, DeadlineExceeded),
    timeout_s=330.0,
    action=Action.CONTROL,
)

LIST_PROCESSES = Unary(
    name="list_processes",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/ps",
    params=MachineParams,
    query=ProcessesQuery,
    response=tuple[ProcessStat, ...],
    tag=Tag.MACHINES,
    summary="List the processes in a machine",
    errors=(NotFound, WrongState),
)

MACHINE_STATS = Unary(
    name="machine_stats",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/stats",
    params=MachineParams,
    response=MachineStats,
    tag=Tag.MACHINES,
    summary="Read what a machine uses: cpu, memory, disk, network",
    errors=(NotFound, WrongState),
)

MACHINE_LOGS = Stream(
    name="machine_logs",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/logs",
    params=MachineParams,
    query=LogsQuery,
    response=LogChunk,
    tag=Tag.MACHINES,
    summary="Read a machine's output",
    errors=(NotFound,),
)

MACHINE_TERMINAL: Socket[MachineParams, NoQuery, TerminalRequest, TerminalOutput, TerminalInput] = Socket(
    name="machine_terminal",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/terminal",
    params=MachineParams,
    body=TerminalRequest,
    response=cast(Any, TerminalOutput),  # a union is no `type[...]` to mypy
    tag=Tag.MACHINES,
    summary="Run a command in a machine, connected to its streams or terminal, whoever holds its lease",
    errors=(NotFound, WrongState),
    action=Action.CONTROL,
    up=cast(Any, TerminalInput),
)

MACHINE_ATTACH: Socket[MachineParams, NoQuery, AttachRequest, TerminalOutput, TerminalInput] = Socket(
    name="machine_attach",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/attach",
    params=MachineParams,
    body=AttachRequest,
    response=cast(Any, TerminalOutput),
    tag=Tag.MACHINES,
    summary="Connect to the input and output of a machine's own process, whoever holds its lease",
    errors=(NotFound, WrongState),
    action=Action.CONTROL,
    up=cast(Any, TerminalInput),
)

MACHINE_COPY: Socket[MachineParams, NoQuery, CopyRequest, TerminalOutput, TerminalInput] = Socket(
    name="machine_copy",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/copy",
    params=MachineParams,
    body=CopyRequest,
    response=cast(Any, TerminalOutput),
    tag=Tag.MACHINES,
    summary="Copy files into a machine or out of it, whoever holds its lease",
    errors=(NotFound, WrongState),
    action=Action.CONTROL,
    up=cast(Any, TerminalInput),
)

INSIDE_ROUTES = (
    EXEC_MACHINE,
    LIST_PROCESSES,
    MACHINE_STATS,
    MACHINE_LOGS,
    MACHINE_TERMINAL,
    MACHINE_ATTACH,
    MACHINE_COPY,
)
