"""`hawker node forget`: a node that will not come back, and all that it said, go from the fleet's memory."""

import click

from hawker.api.bodies import ForgottenNode
from hawker.api.caller import Caller
from hawker.api.routes.cluster import FORGET_NODE, ForgetQuery, NodeParams
from hawker.cli.connect import talk
from hawker.cli.nodes import find_fleet_node

_HELP = """Forget a node that is gone for good. Its rows leave the catalog of every node: its machines are no longer
listed, and nobody waits for it.

Nothing on the node itself is touched. Should it come back, it is one of the fleet again and tells what it has anew.
A node that lives is forgotten only by --force. Machines that matter are moved away first: `hawker node drain`.

\b
Examples:
  hawker node forget 0badcafe
  hawker node forget --force 0badcafe
"""


@click.command("forget", help=_HELP)
@click.argument("node", metavar="NODE")
@click.option("--force", is_flag=True, help="Also a node that lives.")
@click.pass_context
def command(ctx: click.Context, node: str, force: bool) -> None:
    gone = talk(ctx, lambda caller: _forget(caller, node, force))
    click.echo(f"{gone.node} is forgotten: what it said up to epoch {gone.epoch} counts no more")


async def _forget(caller: Caller, node: str, force: bool) -> ForgottenNode:
    found = await find_fleet_node(caller, node)
    return await caller.call(FORGET_NODE, params=NodeParams(node_id=found.id), query=ForgetQuery(force=force))
