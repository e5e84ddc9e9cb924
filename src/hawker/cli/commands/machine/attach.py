"""`hawker machine attach`: back to a machine's own process, with this terminal or pipe."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE
from hawker.cli.attach import join, own_sitting, run_status
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.waiting import AT_REST, reach
from hawker.clock import SystemClock

_ENDS_S = 30.0


@click.command("attach")
@machine_argument
@app_option
@click.option("--no-stdin", is_flag=True, help="Only look: connect no input.")
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, no_stdin: bool) -> int:
    """Go to the process of a machine that was ordered with -i: what you type is its input, what it writes comes here,
    and its exit status is this command's. Leaving does not end it."""
    return talk(ctx, lambda caller: _attach(caller, machine, app, stdin=not no_stdin))


async def _attach(caller: Caller, reference: str, app: str | None, *, stdin: bool) -> int:
    found = await find_machine(caller, reference, app)
    config = (await caller.call(GET_MACHINE, params=found.params)).config
    init = config.init if config is not None else None
    if init is None or not init.stdin:
        raise Failure(f"machine {found.machine.id} has no open input: order it with -i; `hawker logs -f` shows output")
    if not await join(caller, found.params, own_sitting(stdin=stdin, terminal=bool(init.tty))):
        raise Failure(f"machine {found.machine.id} is not running")
    await reach(caller, found.params, AT_REST, SystemClock(), _ENDS_S)
    return await run_status(caller, found.params)
