"""`hawker node list`: the nodes of the fleet, and how they are."""

import click

from hawker.api.contract.cluster import LIST_NODES
from hawker.cli.connect import talk
from hawker.cli.nodes import clock_notes, nodes_table
from hawker.cli.output import Form, note, output_option, show


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@output_option
@click.pass_context
def command(ctx: click.Context, as_json: bool, form: Form) -> None:
    """List the nodes of the fleet: region, state and capacity, as the asked node knows them.

    The capacity of nodes in other regions is unknown and shown as "-".
    """
    answer = talk(ctx, lambda caller: caller.call(LIST_NODES))
    show(answer, Form.JSON if as_json else form, nodes_table)
    for text in clock_notes(answer):
        note(text)
