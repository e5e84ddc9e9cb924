"""`hawker machine wait`."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import WaitAnswer, WaitState
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.notation import OneOf
from hawker.cli.options import app_option, machine_argument, within_option
from hawker.cli.output import Form, output_option, show
from hawker.cli.waiting import reach
from hawker.clock import SystemClock

_HELP = """Wait until a machine is in a state, and print the state; exit status 1 after the timeout.

\b
Examples:
  hawker machine wait web
  hawker machine wait 3d8f --state stopped --state failed --timeout 1h
"""


@click.command("wait", help=_HELP)
@machine_argument
@app_option
@click.option("-s", "--state", "states", multiple=True, type=OneOf(WaitState), metavar="STATE",
              default=(WaitState.STARTED.value,), show_default=True,
              help="started, stopped, suspended, destroyed, failed or settled; any of them when repeated.",
)  # fmt: skip
@within_option
@output_option
@click.pass_context
def command(
    ctx: click.Context, machine: str, app: str | None, states: tuple[WaitState, ...], within_s: float, form: Form
) -> None:
    answer = talk(ctx, lambda caller: _wait(caller, machine, app, states, within_s))
    show(answer, form, lambda answer: str(answer.state))


async def _wait(
    caller: Caller, reference: str, app: str | None, states: tuple[WaitState, ...], within_s: float
) -> WaitAnswer:
    found = await find_machine(caller, reference, app)
    return await reach(caller, found.params, states, SystemClock(), within_s)
