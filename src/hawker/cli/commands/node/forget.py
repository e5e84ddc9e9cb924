"""`hawker node forget`: a node that will not come back, and all that it said, go from the fleet's memory."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import FORGET_NODE, ForgetQuery, ForgottenNode, NodeParams
from hawker.cli.connect import talk
from hawker.cli.loss import loss_of, said_of
from hawker.cli.nodes import find_fleet_node
from hawker.cli.output import note

_HELP = """Forget a node that is gone for good. Its rows leave the catalog of every node: its machines are no longer
listed, and nobody waits for it.

Said before anything is done: how many machines and volumes are no longer listed, and of which apps it was the home.
Another node that knows an app becomes its home when a call needs one; an app that no other node knows is gone with its
secrets. With --dry-run that is all.

Nothing on the node itself is touched. Should it come back, it is one of the fleet again and tells what it has anew.
A node that lives is forgotten only by --force. Machines that matter are moved away first: `hawker node drain`.

\b
Examples:
  hawker node forget --dry-run 0badcafe
  hawker node forget 0badcafe
  hawker node forget --force 0badcafe
"""


@click.command("forget", help=_HELP)
@click.argument("node", metavar="NODE")
@click.option("--force", is_flag=True, help="Also a node that lives.")
@click.option("--dry-run", is_flag=True, help="Only say what is lost.")
@click.pass_context
def command(ctx: click.Context, node: str, force: bool, dry_run: bool) -> None:
    gone = talk(ctx, lambda caller: _forget(caller, node, force, dry_run))
    if gone is not None:
        click.echo(f"{gone.node} is forgotten: what it said up to epoch {gone.epoch} counts no more")


async def _forget(caller: Caller, node: str, force: bool, dry_run: bool) -> ForgottenNode | None:
    found = await find_fleet_node(caller, node)
    for line in said_of(found.id, await loss_of(caller, found.id)):
        note(line)
    if dry_run:
        return None
    return await caller.call(FORGET_NODE, params=NodeParams(node_id=found.id), query=ForgetQuery(force=force))
