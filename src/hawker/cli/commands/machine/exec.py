"""`hawker machine exec`: a command in a machine, with this terminal or in this pipe."""

import os
from contextlib import ExitStack

import click

from hawker.api.caller import Caller
from hawker.api.contract.exec import MACHINE_TERMINAL, Exited, TerminalRequest
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.machines import find_machine
from hawker.cli.notation import Variable, Written, variable
from hawker.cli.options import WordsOfAnother, app_option, machine_argument
from hawker.cli.terminal import Descriptors, converse, is_terminal, own_descriptors, raw_mode, window

_HELP = """Run COMMAND in MACHINE, with your terminal or pipe as its input, and exit with its status.

\b
Examples:
  hawker exec web sh
  echo hi | hawker exec web cat
  hawker exec -u root --cwd /srv web ls -l
  hawker exec --container db web psql

Exit status 125 when the command was never run, 126 when it cannot be executed, 127 when it does not exist.
"""


@click.command("exec", help=_HELP, cls=WordsOfAnother)
@machine_argument
@click.argument("arguments", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@app_option
@click.option("-c", "--container", metavar="NAME", help="The container; default the first one.")
@click.option("-t/-T", "--tty/--no-tty", default=None, help="Use a terminal; by default when there is one here.")
@click.option("-i", "--interactive", is_flag=True, hidden=True, help="Accepted and ignored: input is always connected.")
@click.option("--no-stdin", is_flag=True, help="Connect no input.")
@click.option("-u", "--user", metavar="USER", help="Run as this user.")
@click.option("-w", "--cwd", metavar="DIR", help="Run in this directory.")
@click.option("-e", "--env", multiple=True, type=Written(variable, "variable"), metavar="NAME[=VALUE]",
              help="Set a variable; NAME alone takes the value from your environment.")  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context,
    machine: str,
    arguments: tuple[str, ...],
    app: str | None,
    container: str | None,
    tty: bool | None,
    interactive: bool,
    no_stdin: bool,
    user: str | None,
    cwd: str | None,
    env: tuple[Variable, ...],
) -> int:
    ends = own_descriptors(stdin=not no_stdin)
    terminal = is_terminal(ends) if tty is None else tty
    rows, cols = window(ends.stdout) if terminal and os.isatty(ends.stdout) else (24, 80)
    request = TerminalRequest(
        command=arguments,
        tty=terminal,
        rows=rows,
        cols=cols,
        env=_environment(env, terminal),
        user=user,
        cwd=cwd,
        container=container,
    )
    exited = talk(ctx, lambda caller: _converse(caller, machine, app, request, ends))
    if exited.reason:
        raise Failure(f"cannot run {arguments[0]!r}: {exited.reason}", exited.exit_code or ExitStatus.NOT_RUN)
    return exited.exit_code


def _environment(given: tuple[Variable, ...], terminal: bool) -> dict[str, str]:
    """With a terminal also which kind it is."""
    kind = {"TERM": os.environ.get("TERM", "xterm")} if terminal else {}
    values = {item.name: os.environ.get(item.name) if item.value is None else item.value for item in given}
    return kind | {name: value for name, value in values.items() if value is not None}


async def _converse(
    caller: Caller, reference: str, app: str | None, request: TerminalRequest, ends: Descriptors
) -> Exited:
    found = await find_machine(caller, reference, app)
    async with caller.socket(MACHINE_TERMINAL, request, params=found.params) as channel:
        with ExitStack() as stack:
            if request.tty and ends.stdin is not None and os.isatty(ends.stdin):
                stack.enter_context(raw_mode(ends.stdin))
            return await converse(channel, ends, terminal=request.tty and os.isatty(ends.stdout))
