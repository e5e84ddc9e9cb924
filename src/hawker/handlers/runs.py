"""Answers about runs: what happened, step by step, and the operator's retry and abort."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hawker.api.bounds import RUNS_IN_PAGE
from hawker.api.contract.body import instant
from hawker.api.contract.run import (
    ABORT_RUN,
    GET_RUN,
    LIST_RUNS,
    RETRY_RUN,
    ListRunsQuery,
    Run,
    RunList,
    RunParams,
    RunState,
    RunStep,
    RunSummary,
)
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.errors import BadRequest, NotFound
from hawker.fsm.contract import Resource
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.fsm.view import RunView, StepView
from hawker.ids import RunId, is_volume_id

_STATES = {
    State.QUEUED: RunState.QUEUED,
    State.DELAYED: RunState.QUEUED,
    State.STUCK: RunState.STUCK,
    State.DONE: RunState.DONE,
    State.FAILED: RunState.FAILED,
    State.CANCELLED: RunState.CANCELLED,
}


class RunHandlers:
    def __init__(self, runner: Runner[Any]) -> None:
        self._runner = runner

    @answers(LIST_RUNS)
    async def list(self, call: Call[NoParams, ListRunsQuery, None]) -> RunList:
        query = call.query
        if not 1 <= query.limit <= RUNS_IN_PAGE:
            raise BadRequest(f"limit must be between 1 and {RUNS_IN_PAGE}, not {query.limit}")
        resource = _resource(query.resource_id) if query.resource_id else None
        shown = self._newest(resource, query)
        if not shown and query.flow and query.flow not in self._runner.flows:
            raise BadRequest(f"there is no flow {query.flow}: the flows are {', '.join(self._runner.flows)}")
        more = len(shown) > query.limit
        return RunList(runs=tuple(shown[: query.limit]), next_cursor=shown[query.limit - 1].id if more else None)

    def _newest(self, resource: Resource | None, query: ListRunsQuery) -> Sequence[RunSummary]:
        """At least one more than was asked for, if there is. Looks further back until there are enough."""
        depth = query.limit + 1
        while True:
            found = self._runner.list(resource=resource, flow=query.flow, limit=depth)
            runs = [_summary(view) for view in found if query.cursor is None or view.run_id < query.cursor]
            shown = [run for run in runs if not query.state or run.state in query.state]
            if len(shown) > query.limit or len(found) < depth:
                return shown
            depth *= 8

    @answers(GET_RUN)
    async def get(self, call: Call[RunParams, NoQuery, None]) -> Run:
        return self._show(RunId(call.params.run_id))

    @answers(RETRY_RUN)
    async def retry(self, call: Call[RunParams, NoQuery, None]) -> Run:
        run_id = RunId(call.params.run_id)
        self._show(run_id)
        await self._runner.retry(run_id)
        return self._show(run_id)

    @answers(ABORT_RUN)
    async def abort(self, call: Call[RunParams, NoQuery, None]) -> Run:
        run_id = RunId(call.params.run_id)
        self._show(run_id)
        await self._runner.abort(run_id)
        return self._show(run_id)

    def _show(self, run_id: RunId) -> Run:
        view = self._runner.get(run_id)
        if view is None:
            raise NotFound(f"run {run_id} not found")
        return Run(**msgspec.structs.asdict(_summary(view)), steps=tuple(_steps(view, self._runner.history(run_id))))


def _resource(resource_id: str) -> Resource:
    """What has this id: they are told apart by how they look."""
    return Resource(kind="volume" if is_volume_id(resource_id) else "machine", id=resource_id)


def _summary(view: RunView) -> RunSummary:
    return RunSummary(
        id=view.run_id,
        flow=view.flow,
        resource_kind=view.resource.kind,
        resource_id=view.resource.id,
        state=_STATES.get(view.state, RunState.ACTIVE),
        created_at=instant(view.accepted_at),
        ended_at=instant(view.ended_at) if view.ended_at is not None else None,
        step=view.step or None,
        attempt=view.attempt,
        error=view.error,
        parent_id=view.parent,
    )


def _steps(view: RunView, history: list[StepView]) -> list[RunStep]:
    """One row per step in the order of its first attempt, then the step under way."""
    latest: dict[str, StepView] = {}
    for attempt in history:
        latest[attempt.step] = attempt
    steps = [
        RunStep(
            name=step.step,
            state=step.outcome.value,
            attempts=step.attempt,
            started_at=instant(step.started_at),
            ended_at=instant(step.ended_at),
            error=step.error,
            result=None if step.result is None else msgspec.json.encode(step.result).decode(),
        )
        for step in latest.values()
    ]
    if not view.ended and view.step and view.step not in latest:
        steps.append(RunStep(name=view.step, state="running", attempts=view.attempt))
    return steps
