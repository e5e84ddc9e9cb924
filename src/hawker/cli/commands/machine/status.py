"""`hawker machine status`: all there is to know about one machine, on one page."""

import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE, GetMachineQuery, Machine
from hawker.api.contract.port import PublishedPortState
from hawker.api.contract.run import GET_RUN, LIST_RUNS, ListRunsQuery, Run, RunParams
from hawker.cli.connect import talk
from hawker.cli.machines import Owned, find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, as_json, output_option
from hawker.cli.publishing import published_now, where
from hawker.cli.summary import status, steps
from hawker.errors import Forbidden
from hawker.value_object import ValueObject


class SeenMachine(ValueObject, frozen=True):
    owned: Owned
    run: Run | None
    ports: tuple[PublishedPortState, ...]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The same as JSON."""

    app: str
    machine: Machine
    last_run: Run | None


@click.command("status")
@machine_argument
@app_option
@output_option
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """Show a machine: its checks, its latest events, and the steps of its last run."""
    seen = talk(ctx, lambda caller: look(caller, machine, app))
    if form is Form.JSON:
        click.echo(as_json(Shown(app=seen.owned.app, machine=seen.owned.machine, last_run=seen.run)))
        return
    click.echo(status(seen.owned, where(seen.ports)))
    if seen.run is not None:
        click.echo(f"\n{steps(seen.run)}")


async def look(caller: Caller, reference: str, app: str | None) -> SeenMachine:
    found = await find_machine(caller, reference, app)
    machine = await caller.call(GET_MACHINE, params=found.params, query=GetMachineQuery(include_leases=True))
    ports = await published_now(caller, found.params, machine.config)
    return SeenMachine(Owned(found.app, machine), await last_run(caller, machine.id), ports)


async def last_run(caller: Caller, machine_id: str) -> Run | None:
    """None also for a token that does not see the node's runs."""
    try:
        runs = await caller.call(LIST_RUNS, query=ListRunsQuery(resource_id=machine_id, limit=1))
    except Forbidden:
        return None
    if not runs.runs:
        return None
    return await caller.call(GET_RUN, params=RunParams(run_id=runs.runs[0].id))
