"""`hawker machine list`: of one app or of all."""

from datetime import UTC, datetime

import click
import msgspec

from hawker.api.contract.machine import ListMachinesQuery, Machine
from hawker.cli.connect import talk
from hawker.cli.machines import Owned, list_machines
from hawker.cli.notation import OneOf, Written, pair
from hawker.cli.options import app_option
from hawker.cli.output import Form, as_json, output_option
from hawker.cli.summary import listing
from hawker.clock import SystemClock
from hawker.machine import State

_HELP = """List machines: of one app, or of all.

\b
Examples:
  hawker machine list
  hawker machine list --app web --state started
  hawker machine list --metadata tier=front -q
"""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as JSON says it, with its app: the API's answers are about one app and leave that out."""

    app: str
    machine: Machine


@click.command("list", help=_HELP)
@app_option
@click.option("-s", "--state", "states", multiple=True, type=OneOf(State), metavar="STATE",
              help="Only machines in this state; may be repeated.")  # fmt: skip
@click.option("-r", "--region", metavar="CODE", help="Only machines in this region.")
@click.option("--metadata", multiple=True, type=Written(pair, "pair"), metavar="KEY=VALUE",
              help="Only machines with this metadata.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also destroyed machines, as long as the node knows them.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@output_option
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
    query = ListMachinesQuery(
        state=states,
        region=region,
        metadata=dict(metadata),
        include_deleted=everything,
        summary=form is Form.TABLE,
    )
    machines = talk(ctx, lambda caller: list_machines(caller, app, query))
    click.echo(_as_text(machines, quiet, form), nl=bool(machines) or not quiet)


def _as_text(machines: list[Owned], quiet: bool, form: Form) -> str:
    if quiet:
        return "\n".join(owned.machine.id for owned in machines)
    if form is Form.JSON:
        return as_json([Listed(app=owned.app, machine=owned.machine) for owned in machines])
    return listing(machines, datetime.fromtimestamp(SystemClock().now(), UTC))
