"""Calls about runs: what the worker did, step by step, and the operator's hand on it."""

from types import NoneType

import msgspec

from hawker.api.bodies import Run, RunList, RunState
from hawker.api.bounds import RunsLimit
from hawker.api.route import NoParams, NoQuery, Tag, Unary
from hawker.errors import NotFound, WrongState


class RunParams(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str


class ListRunsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """By resource (a machine's or a volume's id), by flow, by state; newest first."""

    resource_id: str | None = None
    flow: str | None = None
    state: tuple[RunState, ...] = ()
    limit: RunsLimit = 50
    cursor: str | None = None


LIST_RUNS = Unary(
    name="list_runs",
    method="GET",
    path="/hawker/v1/runs",
    params=NoParams,
    query=ListRunsQuery,
    body=NoneType,
    response=RunList,
    tag=Tag.RUNS,
    summary="List runs, newest first",
)

GET_RUN = Unary(
    name="get_run",
    method="GET",
    path="/hawker/v1/runs/{run_id}",
    params=RunParams,
    query=NoQuery,
    body=NoneType,
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
    query=NoQuery,
    body=NoneType,
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
    query=NoQuery,
    body=NoneType,
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
