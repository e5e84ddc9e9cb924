"""`hawker place`: order machines and be told what every node bid, or only ask."""

import click

from hawker.api.contract.market import PlaceAnswer
from hawker.cli import ordering
from hawker.cli.commands.machine.run import image_argument, order_for, ordered_config
from hawker.cli.connect import talk
from hawker.cli.machine_config import Flags
from hawker.cli.machine_options import PlacementOptions, machine_options, placement_options
from hawker.cli.options import command_argument
from hawker.cli.ordering import Count, bids_table, count_options, said_of_the_rest
from hawker.cli.output import Form, as_json, output_option

_HELP = """Order machines from IMAGE, and do not wait until they run. --explain shows every bid, its parts and why it
lost; --dry-run orders nothing.

\b
Examples:
  hawker place --dry-run --cpus 2 --memory 1g registry.local:5000/web:3
  hawker place --explain --region mad,eu --count 3 registry.local/web:3
"""


@click.command("place", help=_HELP)
@image_argument
@command_argument
@placement_options
@machine_options
@count_options
@click.option("--explain", is_flag=True, help="Show every bid.")
@click.option("--dry-run", is_flag=True, help="Ask for bids and show them; order nothing.")
@click.option("--skip-launch", is_flag=True, help="Prepare the machines and leave them stopped.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    image: str | None,
    arguments: tuple[str, ...],
    placement: PlacementOptions,
    flags: Flags,
    count: Count,
    explain: bool,
    dry_run: bool,
    skip_launch: bool,
    form: Form,
) -> int:
    order = order_for(ordered_config(image, arguments, flags), placement, flags, skip_launch=skip_launch)
    answer = talk(
        ctx,
        lambda caller: ordering.place_many(
            caller, order, count=count.count or 1, all_or_nothing=count.all_or_nothing, dry_run=dry_run
        ),
    )
    click.echo(as_json(answer) if form is Form.JSON else "\n".join(_lines(answer, explain or dry_run)))
    return said_of_the_rest(answer)


def _lines(answer: PlaceAnswer, explain: bool) -> list[str]:
    lines = [bids_table(answer)] if explain else []
    return lines + [machine.id for machine in answer.machines]
