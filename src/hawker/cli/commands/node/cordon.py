"""`hawker node cordon` and `uncordon`: whether a node takes new machines. Those that are there go on."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import CORDON_NODE, UNCORDON_NODE, FleetNode, NodeParams
from hawker.api.route import NoQuery, Unary
from hawker.cli.connect import talk
from hawker.cli.nodes import find_fleet_node


@click.command("cordon")
@click.argument("node", metavar="NODE")
@click.pass_context
def cordon(ctx: click.Context, node: str) -> None:
    """Have a node take no new machines. Those that are there go on, also over a restart of the node."""
    changed = talk(ctx, lambda caller: _change(caller, node, CORDON_NODE))
    click.echo(f"{changed.id} takes no new machines")


@click.command("uncordon")
@click.argument("node", metavar="NODE")
@click.pass_context
def uncordon(ctx: click.Context, node: str) -> None:
    """Have a node take new machines again."""
    changed = talk(ctx, lambda caller: _change(caller, node, UNCORDON_NODE))
    click.echo(f"{changed.id} takes new machines")


async def _change(caller: Caller, node: str, route: Unary[NodeParams, NoQuery, None, FleetNode]) -> FleetNode:
    found = await find_fleet_node(caller, node)
    return await caller.call(route, params=NodeParams(node_id=found.id))
