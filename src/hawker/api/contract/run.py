"""Bodies about runs, what the worker did to a machine, step by step; and about a machine's whole history."""

from datetime import datetime
from enum import StrEnum

import msgspec

from hawker.api.bounds import RunsLimit
from hawker.api.contract.body import Answer
from hawker.api.contract.machine import MachineEvent
from hawker.api.route import NoParams, Tag, Unary
from hawker.config import MachineConfig
from hawker.errors import Fault, NotFound, Unavailable, WrongState


class RunState(StrEnum):
    QUEUED = "queued"
    ACTIVE = "active"
    STUCK = "stuck"  # its flow was changed under it; an operator retries or aborts it
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunSummary(Answer, frozen=True, kw_only=True):
    """`step` is the one under way or the last one. `resource` is what it works on, such as machine and its id."""

    id: str
    flow: str
    resource_kind: str
    resource_id: str
    state: RunState
    created_at: datetime
    ended_at: datetime | None = None
    step: str | None = None
    attempt: int = 0
    error: str | None = None
    parent_id: str | None = None


class RunStep(Answer, frozen=True, kw_only=True):
    """One step: `state` is waiting, running, done, failed or undone. `result` is what it recorded, as JSON text."""

    name: str
    state: str
    attempts: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    result: str | None = None


class Run(RunSummary, frozen=True, kw_only=True):
    steps: tuple[RunStep, ...]


class RunList(Answer, frozen=True, kw_only=True):
    """Newest first."""

    runs: tuple[RunSummary, ...]
    next_cursor: str | None = None


# Calls about runs: what the worker did, step by step, and the operator's hand on it.


class RunParams(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    """A ULID; runs of all flows have ids of one kind."""


class ListRunsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """By resource (a machine's or a volume's id), by flow, by state; newest first."""

    resource_id: str | None = None
    """Only runs that work on this machine, volume, image or app; absent: all."""
    flow: str | None = None
    """Only runs of the flow of this name; absent: of all."""
    state: tuple[RunState, ...] = ()
    limit: RunsLimit = 50
    cursor: str | None = None
    """What the last page gave as the next one; absent for the first page."""


LIST_RUNS = Unary(
    name="list_runs",
    method="GET",
    path="/hawker/v1/runs",
    params=NoParams,
    query=ListRunsQuery,
    response=RunList,
    tag=Tag.RUNS,
    summary="List runs, newest first",
)

GET_RUN = Unary(
    name="get_run",
    method="GET",
    path="/hawker/v1/runs/{run_id}",
    params=RunParams,
    response=Run,
    tag=Tag.RUNS,
    summary="Show a run with its steps",
    errors=(NotFound,),
)

RETRY_RUN = Unary(
    name="retry_run",
    method="POST",
    path="/hawker/v1/runs/{run_id}/retry",
    params=RunParams,
    response=Run,
    tag=Tag.RUNS,
    summary="Try a stuck run's step again",
    errors=(NotFound, WrongState),
)

ABORT_RUN = Unary(
    name="abort_run",
    method="POST",
    path="/hawker/v1/runs/{run_id}/abort",
    params=RunParams,
    response=Run,
    tag=Tag.RUNS,
    summary="Abort a run and undo what it did",
    errors=(NotFound, WrongState),
)

RUN_ROUTES = (
    LIST_RUNS,
    GET_RUN,
    RETRY_RUN,
    ABORT_RUN,
)


class Kept(StrEnum):
    """Where a history was read from."""

    NODE = "node"
    ARCHIVE = "archive"


class HistoryVersion(Answer, frozen=True, kw_only=True):
    """A version of the config and when it came to be."""

    version: str
    created_at: datetime
    image: str
    image_digest: str
    user_config: MachineConfig


class MachineHistory(Answer, frozen=True, kw_only=True):
    """All that is known of a machine, oldest first. `node` is where it was; `updated_at` of a destroyed machine is when
    it was destroyed. A run's steps are all their attempts."""

    id: str
    app: str
    name: str
    node: str
    region: str
    state: str
    image: str
    image_digest: str
    version: str
    private_ip: str
    created_at: datetime
    updated_at: datetime
    kept: Kept
    versions: tuple[HistoryVersion, ...]
    events: tuple[MachineEvent, ...]
    runs: tuple[Run, ...]


# The call for a machine's whole history, wherever it is kept.


class HistoryParams(msgspec.Struct, frozen=True, kw_only=True):
    """By the machine's whole id alone: its app may be gone."""

    machine_id: str
    """The machine's id, 14 hexadecimal digits."""


MACHINE_HISTORY = Unary(
    name="machine_history",
    method="GET",
    path="/hawker/v1/machines/{machine_id}/history",
    params=HistoryParams,
    response=MachineHistory,
    tag=Tag.MACHINES,
    summary="Show a machine's whole history, also from the archive",
    errors=(NotFound, Unavailable, Fault),
    guarded=False,  # whose machine it was is in the history
    timeout_s=90.0,
)

HISTORY_ROUTES = (MACHINE_HISTORY,)
