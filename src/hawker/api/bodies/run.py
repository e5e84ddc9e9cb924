"""Bodies about runs: what the worker did to a machine, step by step."""

from datetime import datetime
from enum import StrEnum

from hawker.api.bodies.body import Answer


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
