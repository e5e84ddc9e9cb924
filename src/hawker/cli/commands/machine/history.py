"""`hawker machine history`."""

import re
from contextlib import suppress

import click

from hawker.api.caller import Caller
from hawker.api.contract.run import MACHINE_HISTORY, HistoryParams, MachineHistory
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show
from hawker.cli.summary import told
from hawker.errors import NotFound

_WHOLE_ID = re.compile(r"[0-9a-f]{14}")


@click.command("history")
@machine_argument
@app_option
@click.option("--runs", "with_steps", is_flag=True, help="Show every step of every run.")
@output_option
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, with_steps: bool, form: Form) -> None:
    """Show the history of a machine, oldest first: its versions, events and runs; -o json has them in full.

    A destroyed machine has a history too, on the node or in the archive. For a destroyed machine, MACHINE is the whole
    id.
    """
    show(
        talk(ctx, lambda caller: _history(caller, machine, app)), form, lambda found: told(found, with_steps=with_steps)
    )


async def _history(caller: Caller, reference: str, app: str | None) -> MachineHistory:
    """A whole id is asked for as it is: nothing else is known of a machine that only the archive has."""
    if _WHOLE_ID.fullmatch(reference):
        with suppress(NotFound):
            return await caller.call(MACHINE_HISTORY, params=HistoryParams(machine_id=reference))
    found = await find_machine(caller, reference, app)
    return await caller.call(MACHINE_HISTORY, params=HistoryParams(machine_id=found.machine.id))
