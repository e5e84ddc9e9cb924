"""`hawker node cordon` and `uncordon`: whether a node takes new machines. Those that are there go on."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import CORDON_NODE, UNCORDON_NODE, FleetNode, NodeParams
from hawker.api.route import NoQuery, Unary
from hawker.cli.connect import talk
from hawker.cli.nodes import find_fleet_node
from hawker.cli.options import completed
from hawker.cli.output import Form, output_option, show


@click.command("cordon")
@click.argument("node", metavar="NODE", shell_complete=completed("nodes"))
@output_option
@click.pass_context
def cordon(ctx: click.Context, node: str, form: Form) -> None:
    """Disable scheduling on a node: it accepts no new machines, also after a restart. Its machines continue."""
    changed = talk(ctx, lambda caller: _change(caller, node, CORDON_NODE))
    show(changed, form, lambda node: f"{node.id} accepts no new machines")


@click.command("uncordon")
@click.argument("node", metavar="NODE", shell_complete=completed("nodes"))
@output_option
@click.pass_context
def uncordon(ctx: click.Context, node: str, form: Form) -> None:
    """Enable scheduling on a node: it accepts new machines again."""
    changed = talk(ctx, lambda caller: _change(caller, node, UNCORDON_NODE))
    show(changed, form, lambda node: f"{node.id} accepts new machines")


async def _change(caller: Caller, node: str, route: Unary[NodeParams, NoQuery, None, FleetNode]) -> FleetNode:
    found = await find_fleet_node(caller, node)
    return await caller.call(route, params=NodeParams(node_id=found.id))
