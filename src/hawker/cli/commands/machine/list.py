"""`hawker machine list`: of one app or of all."""

from datetime import UTC, datetime

import click

from hawker.cli.lazy import found
from hawker.cli.listing import MachineSelection, listing, read_machines
from hawker.cli.notation import OneOf, Written, pair
from hawker.cli.options import app_option, completed
from hawker.cli.output import Form, as_json, wide_output_option
from hawker.cli.target import target_of
from hawker.clock import SystemClock
from hawker.machine import State

_WHOLE = "hawker.cli.machines"
"""Imported by name: it brings a client of the whole API, which most lists do without."""

_HELP = """List machines: of one app, or of all.

\b
Examples:
  hawker ps
  hawker machine list --app web --state started
  hawker machine list --metadata tier=front -q
  hawker machine list -o wide           addresses too
"""


@click.command("list", help=_HELP)
@app_option
@click.option("-s", "--state", "states", multiple=True, type=OneOf(State), metavar="STATE",
              help="Only machines in this state; may be repeated.")  # fmt: skip
@click.option(
    "-r", "--region", metavar="CODE", shell_complete=completed("regions"), help="Only machines in this region."
)
@click.option("--metadata", multiple=True, type=Written(pair, "pair"), metavar="KEY=VALUE",
              help="Only machines with this metadata.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also destroyed machines, as long as the node knows them.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@wide_output_option
@click.pass_context
def command(
    ctx: click.Context,
    app: str | None,
    states: tuple[State, ...],
    region: str | None,
    metadata: tuple[tuple[str, str], ...],
    everything: bool,
    quiet: bool,
    form: Form,
) -> None:
    selection = MachineSelection(app=app, states=states, region=region, metadata=metadata, everything=everything)
    if form is Form.JSON:
        click.echo(as_json(found(_WHOLE, "select_machines")(ctx, selection, summary=False)))
        return
    machines = read_machines(target_of(ctx), selection)
    if machines is None:
        machines = found(_WHOLE, "listed_machines")(ctx, selection)
    if quiet:
        click.echo("\n".join(each.machine.id for each in machines), nl=bool(machines))
    else:
        click.echo(listing(machines, datetime.fromtimestamp(SystemClock().now(), UTC), wide=form is Form.WIDE))
