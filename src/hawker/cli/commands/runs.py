"""`hawker runs`: what the node did, step by step, and the operator's hand on it."""

import click

from hawker.api.caller import Caller
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
from hawker.cli.machines import find_machine
from hawker.cli.notation import OneOf
from hawker.cli.output import Form, local, output_option, show, table, took
from hawker.cli.summary import steps

run_argument = click.argument("run", metavar="RUN")


@click.group("runs", no_args_is_help=True)
def command() -> None:
    """List, show, retry and abort runs: what the node did, step by step."""


@command.command("list")
@click.option("-m", "--machine", metavar="MACHINE", help="Only runs of this machine.")
@click.option("-v", "--volume", metavar="ID", help="Only runs of this volume.")
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
        resource = (await find_machine(caller, machine, None)).machine.id if machine else volume
        query = ListRunsQuery(resource_id=resource, flow=flow, state=states, limit=limit)
        return await caller.call(LIST_RUNS, query=query)

    show(talk(ctx, runs), form, runs_table)


def _short(name: str) -> str:
    """A digest as lists of images show it."""
    return name[:19] if name.startswith("sha256:") else name


def runs_table(answer: RunList) -> str:
    rows = (
        (
            run.id,
            run.flow,
            f"{run.resource_kind} {_short(run.resource_id)}",
            run.state,
            run.step,
            local(run.created_at),
            took(run.ended_at - run.created_at) if run.ended_at else None,
            run.error,
        )
        for run in answer.runs
    )
    return table(("RUN", "FLOW", "OF", "STATE", "STEP", "BEGAN", "TOOK", "ERROR"), rows)


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
