"""Runs and their history as callers see them: decoded, and with what a run waits for right now."""

from typing import Any

import msgspec

from hawker.errors import HawkerError
from hawker.fair.turns import Turns
from hawker.fsm.contract import Resource
from hawker.fsm.run import ENDED, Fault, Run, State, StepRecord, StepStatus, error_of
from hawker.ids import RunId
from hawker.value_object import ValueObject


class RunView(ValueObject, frozen=True, kw_only=True):
    """Times are Unix seconds. `input` and `result` are plain values (dicts, lists, numbers, text)."""

    run_id: RunId
    flow: str
    """The name of the flow."""
    definition: str
    """A hash of the flow's steps when the run began."""
    resource: Resource
    state: State
    step: str
    """The name of the first step whose end is not recorded, or that is to be undone next."""
    attempt: int
    """The number of the attempt of that step, 1 or more."""
    finished: tuple[str, ...]
    """Names of the steps that are done and not undone, in order."""
    input: Any
    result: Any
    accepted_at: float
    started_at: float | None
    ended_at: float | None
    deadline_at: float | None
    wake_at: float | None
    fault: Fault | None
    waiting_for: str  # "", "turn", "time", "operator", "queue NAME" or "run ID"
    note: str
    """The text that the run was told last; empty for nothing."""
    parent: RunId | None
    children: tuple[RunId, ...]
    handed_from: RunId | None
    handed_to: RunId | None
    resumes: int
    """The number of daemons that took the run up again, 0 or more."""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def error(self) -> str | None:
        """The text that a person reads about a run that failed, was cancelled or is stuck; None for other runs."""
        if self.state is State.STUCK and self.note:
            return self.note
        return None if self.fault is None else self.fault.text

    @property
    def failure(self) -> HawkerError | None:
        """The error that ended the run, as it was raised; none while it runs and when it is done."""
        return error_of(self.fault) if self.fault is not None and self.ended else None


class StepView(ValueObject, frozen=True, kw_only=True):
    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt, 1 or more; counts for each step anew."""
    outcome: StepStatus
    started_at: float
    """The time at which the attempt began, in Unix seconds."""
    ended_at: float
    """The time at which the attempt ended, in Unix seconds."""
    error: str | None
    """The error in words; None if the attempt ended well."""
    result: Any


class QueueView(ValueObject, frozen=True, kw_only=True):
    """A named queue: how many steps it lets go on at once, how many do, how many runs wait."""

    name: str
    """The name of the queue, as flows name it."""
    limit: int
    """The most steps of the queue that go on at once, 1 or more."""
    active: int
    """The number of steps that go on now, 0 to `limit`."""
    waiting: int
    """The number of runs that wait, 0 or more."""


def shown_state(state: State, waiting_for: str) -> State:
    return State.WAITING if state is State.RUNNING and waiting_for else state


def view_of(run: Run, waiting_for: str = "") -> RunView:
    return RunView(
        run_id=run.id,
        flow=run.flow,
        definition=run.definition,
        resource=run.resource,
        state=shown_state(run.state, waiting_for),
        step=run.step,
        attempt=run.attempt,
        finished=run.finished,
        input=_plain(run.input),
        result=_plain(run.result),
        accepted_at=run.accepted_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        deadline_at=run.deadline_at,
        wake_at=run.wake_at,
        fault=run.fault,
        waiting_for=waiting_for,
        note=run.note,
        parent=run.parent,
        children=tuple(run.children.values()),
        handed_from=run.handed_from,
        handed_to=run.handed_to,
        resumes=run.resumes,
    )


def step_view_of(record: StepRecord) -> StepView:
    return StepView(
        step=record.step,
        attempt=record.attempt,
        outcome=record.outcome,
        started_at=record.started_at,
        ended_at=record.ended_at,
        error=None if record.fault is None else record.fault.text,
        result=_plain(record.result),
    )


def queue_view_of(name: str, turns: Turns) -> QueueView:
    now = turns.view()
    return QueueView(name=name, limit=now.share.total, active=now.used, waiting=now.waiting)


def _plain(data: bytes | None) -> Any:
    return None if data is None else msgspec.msgpack.decode(data)
