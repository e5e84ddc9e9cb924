"""`hawker runs`: what the node did, step by step, and the operator's hand on it."""

from datetime import datetime

import click

from hawker.api.caller import Caller
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
)
from hawker.api.route import NoQuery, Unary
from hawker.cli.connect import talk
from hawker.cli.history import steps
from hawker.cli.machines import find_machine
from hawker.cli.notation import OneOf
from hawker.cli.options import completed
from hawker.cli.output import Form, age, output_option, show, table, took
from hawker.cli.volumes import find_volume
from hawker.clock import SystemClock
from hawker.errors import plain
from hawker.ids import is_volume_id

run_argument = click.argument("run", metavar="RUN")


@click.group("runs", no_args_is_help=True)
def command() -> None:
    """List, show, retry and abort runs: what the node did, step by step."""


@command.command("list")
@click.option(
    "-m", "--machine", metavar="MACHINE", shell_complete=completed("machines"), help="Only runs of this machine."
)
@click.option("-v", "--volume", metavar="VOLUME", shell_complete=completed("volumes"), help="Only runs of this volume.")
@click.option("--flow", metavar="NAME", help="Only runs of this flow, such as create or start.")
@click.option("-s", "--state", "states", multiple=True, type=OneOf(RunState), metavar="STATE",
              help="queued, active, stuck, done, failed or cancelled; may be repeated.")  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="How many.")
@output_option
@click.pass_context
def list_runs(
    ctx: click.Context,
    machine: str | None,
    volume: str | None,
    flow: str | None,
    states: tuple[RunState, ...],
    limit: int,
    form: Form,
) -> None:
    """List runs, newest first."""

    async def runs(caller: Caller) -> RunList:
        resource = await _resource(caller, machine, volume)
        query = ListRunsQuery(resource_id=resource, flow=flow, state=states, limit=limit)
        return await caller.call(LIST_RUNS, query=query)

    show(talk(ctx, runs), form, lambda answer: runs_table(answer, instant(SystemClock().now())))


async def _resource(caller: Caller, machine: str | None, volume: str | None) -> str | None:
    """The id of what the runs are about. A volume that is gone has its runs still, under its id."""
    if machine:
        return (await find_machine(caller, machine, None)).machine.id
    if volume and not is_volume_id(volume):
        return (await find_volume(caller, volume, None)).volume.id
    return volume


def _short(name: str) -> str:
    """A digest as lists of images show it."""
    return name[:19] if name.startswith("sha256:") else name


def runs_table(answer: RunList, now: datetime) -> str:
    """Errors have a column only where a run has one."""
    failed = any(run.error for run in answer.runs)
    rows = (
        (
            run.id,
            run.flow,
            _short(run.resource_id),
            run.state if run.ended_at else f"{run.state} at {run.step}",
            took(run.ended_at - run.created_at) if run.ended_at else None,
            age(run.created_at, now),
            *((plain(run.error),) * failed),
        )
        for run in answer.runs
    )
    return table(("RUN", "FLOW", "OF", "STATE", "TOOK", "AGE", *(("ERROR",) * failed)), rows, prose=("ERROR",))


@command.command("show")
@run_argument
@output_option
@click.pass_context
def show_run(ctx: click.Context, run: str, form: Form) -> None:
    """Show a run: each of its steps, and how long it took."""
    _answer(ctx, GET_RUN, run, form)


@command.command("retry")
@run_argument
@output_option
@click.pass_context
def retry_run(ctx: click.Context, run: str, form: Form) -> None:
    """Try a stuck run's step again."""
    _answer(ctx, RETRY_RUN, run, form)


@command.command("abort")
@run_argument
@output_option
@click.pass_context
def abort_run(ctx: click.Context, run: str, form: Form) -> None:
    """Abort a run, and undo what it did."""
    _answer(ctx, ABORT_RUN, run, form)


def _answer(ctx: click.Context, route: Unary[RunParams, NoQuery, None, Run], run: str, form: Form) -> None:
    show(talk(ctx, lambda caller: caller.call(route, params=RunParams(run_id=run))), form, steps)
