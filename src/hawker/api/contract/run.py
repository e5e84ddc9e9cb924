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
    """The id of the run, a ULID: a later run has a greater one."""
    flow: str
    """The name of the flow that the run executes: `start`, `stop` and so on."""
    resource_kind: str
    """The kind of what the run works on: `machine`, `volume`, `image` and so on."""
    resource_id: str
    """The id of what the run works on; no other run works on it at the same time."""
    state: RunState
    created_at: datetime
    ended_at: datetime | None = None
    step: str | None = None
    attempt: int = 0
    """How often the run has begun `step`, 1 or more; 0 before the first step."""
    error: str | None = None
    """The last error of the run, for people; null for none."""
    parent_id: str | None = None
    """The id of the run that waits for this one; null for none."""


class RunStep(Answer, frozen=True, kw_only=True):
    """One step: `state` is waiting, running, done, failed or undone. `result` is what it recorded, as JSON text."""

    name: str
    """The name of the step, unique in its flow."""
    state: str
    attempts: int
    """How often the step was begun, 0 or more."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    """The error of the step's last attempt, for people; null for an attempt without one."""
    result: str | None = None


class Run(RunSummary, frozen=True, kw_only=True):
    steps: tuple[RunStep, ...]


class RunList(Answer, frozen=True, kw_only=True):
    """The runs, newest first."""

    runs: tuple[RunSummary, ...]
    next_cursor: str | None = None
    """The `cursor` with which the next call shows the next page; null on the last page."""


# Calls about runs: what the worker did, step by step, and the operator's hand on it.


class RunParams(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    """The id of the run, a ULID."""


class ListRunsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are asked for: by resource, by flow, by state; newest first."""

    resource_id: str | None = None
    """The id of a machine or volume: the answer has only runs that work on it; absent: all runs."""
    flow: str | None = None
    """The name of a flow: the answer has only runs of it; absent: of all flows."""
    state: tuple[RunState, ...] = ()
    limit: RunsLimit = 50
    cursor: str | None = None
    """The `next_cursor` of the page before: this page begins after it; absent: the first page."""


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
    """The place where a history was read."""

    NODE = "node"
    ARCHIVE = "archive"


class HistoryVersion(Answer, frozen=True, kw_only=True):
    """A version of the config, and the moment when it was made."""

    version: str
    """The version, a ULID: a later version of the machine has a greater one."""
    created_at: datetime
    image: str
    """The reference of the image, with its registry and tag filled in."""
    image_digest: str
    """The digest of the image that the version was made from."""
    user_config: MachineConfig


class MachineHistory(Answer, frozen=True, kw_only=True):
    """All that is known of a machine, oldest first. `node` is where it was; `updated_at` of a destroyed machine is when
    it was destroyed. A run's steps are all their attempts."""

    id: str
    """The id of the machine, 14 hexadecimal digits, unique in the cluster."""
    app: str
    """The name of the machine's app."""
    name: str
    """The name of the machine; other machines of the app had another one at that time."""
    node: str
    region: str
    """The code of the region of the machine's node."""
    state: str
    """The state of the machine; `destroyed` for one that is gone."""
    image: str
    """The reference of the last version's image, with its registry and tag filled in."""
    image_digest: str
    """The digest of the image that the last version was made from."""
    version: str
    """The machine's last version, a ULID."""
    private_ip: str
    """The IPv6 address of the machine in the app's private network."""
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
