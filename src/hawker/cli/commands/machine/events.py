"""`hawker machine events`."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import LIST_EVENTS, ListEventsQuery, MachineEvent
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show
from hawker.cli.summary import events


@click.command("events")
@machine_argument
@app_option
@click.option("-n", "--limit", default=20, show_default=True, help="How many events, at most 50.")
@output_option
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, limit: int, form: Form) -> None:
    """What happened to a machine, newest first."""
    show(talk(ctx, lambda caller: _events(caller, machine, app, limit)), form, events)


async def _events(caller: Caller, reference: str, app: str | None, limit: int) -> tuple[MachineEvent, ...]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_EVENTS, params=found.params, query=ListEventsQuery(limit=limit))
