"""Calls into a running machine: commands, processes, output."""

from types import NoneType
from typing import Annotated, Any, Literal, cast

import msgspec

from hawker.api.bodies import (
    ExecAnswer,
    ExecRequest,
    LogChunk,
    ProcessStat,
    TerminalInput,
    TerminalOutput,
    TerminalRequest,
)
from hawker.api.route import NoQuery, Socket, Stream, Tag, Unary
from hawker.api.routes.machines import MachineParams
from hawker.errors import DeadlineExceeded, LeaseHeld, NotFound, WrongState
from hawker.permission import Action


class ProcessesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`sort_by` a field of the answer; `order` asc or desc."""

    sort_by: Literal["pid", "stime", "rtime", "command", "directory", "cpu", "rss"] | None = None
    order: Literal["asc", "desc"] | None = None


class LogsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`after` a position, then at most the last `tail` lines; `follow` goes on with what comes."""

    follow: bool = False
    tail: Annotated[int, msgspec.Meta(ge=0)] | None = None
    after: int | None = None


EXEC_MACHINE = Unary(
    name="exec_machine",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/exec",
    params=MachineParams,
    query=NoQuery,
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
    body=NoneType,
    response=tuple[ProcessStat, ...],
    tag=Tag.MACHINES,
    summary="List the processes in a machine",
    errors=(NotFound, WrongState),
)

MACHINE_LOGS = Stream(
    name="machine_logs",
    method="GET",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/logs",
    params=MachineParams,
    query=LogsQuery,
    body=NoneType,
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
    query=NoQuery,
    body=TerminalRequest,
    response=cast(Any, TerminalOutput),  # a union is no `type[...]` to mypy
    tag=Tag.MACHINES,
    summary="Run a command in a machine, connected to its streams or terminal",
    errors=(NotFound, WrongState),
    action=Action.CONTROL,
    up=cast(Any, TerminalInput),
)

INSIDE_ROUTES = (
    EXEC_MACHINE,
    LIST_PROCESSES,
    MACHINE_LOGS,
    MACHINE_TERMINAL,
)
