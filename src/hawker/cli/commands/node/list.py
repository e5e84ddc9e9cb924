"""`hawker node list`: the nodes of the fleet, and how they are."""

from functools import partial

import click

from hawker.api.contract.cluster import LIST_NODES
from hawker.cli.connect import talk
from hawker.cli.nodes import clock_notes, nodes_table
from hawker.cli.output import Form, note, show, wide_output_option


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@wide_output_option
@click.pass_context
def command(ctx: click.Context, as_json: bool, form: Form) -> None:
    """List the nodes of the fleet: region, state and capacity, as the asked node knows them.

    CPUS is what is taken and what there is; SHARED the same for shared cpus, of which several are sold for each real
    one: they share it, and each gets its part when all are busy. What is unknown of other regions is shown as "-".
    """
    answer = talk(ctx, lambda caller: caller.call(LIST_NODES))
    show(answer, Form.JSON if as_json else form, partial(nodes_table, wide=form is Form.WIDE))
    for text in clock_notes(answer):
        note(text)
