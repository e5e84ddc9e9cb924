"""`hawker machine logs`: the bytes that a machine wrote, to the streams that it wrote them to."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.node import LogChunk
from hawker.cli.attach import Follower
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, line_of_json, output_option


@click.command("logs")
@machine_argument
@app_option
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the machine is destroyed.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@output_option
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, follow: bool, lines: int | None, form: Form) -> None:
    """Print a machine's output: what it wrote to stdout on stdout, the rest on stderr. Lines of a machine with several
    containers begin with the container's name.

    With -o json each piece is one line, with its time, its stream and its bytes in base64."""
    talk(ctx, lambda caller: _print(caller, machine, app, follow, lines, form))


async def _print(caller: Caller, reference: str, app: str | None, follow: bool, lines: int | None, form: Form) -> None:
    found = await find_machine(caller, reference, app)
    write = None if form is Form.TABLE else _write_json
    await Follower(caller, found.params, write).print(follow=follow, tail=lines)


def _write_json(chunk: LogChunk) -> None:
    click.echo(line_of_json(chunk))
