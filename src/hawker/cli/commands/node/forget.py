"""`hawker node forget`: a node that will not come back, and all that it said, go from the fleet's memory."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import FORGET_NODE, ForgetQuery, ForgottenNode, NodeParams
from hawker.cli.connect import talk
from hawker.cli.nodes import find_fleet_node, loss_of, said_of
from hawker.cli.options import completed
from hawker.cli.output import Form, note, output_option, show

_HELP = """Remove a node that will not come back. Every node drops its rows from the catalog: its machines are no longer
listed, and nobody waits for it.

The command first prints the consequences: how many machines and volumes will no longer be listed, and which apps lose
their home. The next call that needs a home moves the app to another node that knows it; an app that no other node knows
is lost with its secrets. --dry-run prints the consequences and changes nothing.

Nothing on the node itself is touched. If it comes back, it joins the fleet again and publishes what it has. A living
node is removed only with --force. First move the machines that matter: `hawker node drain`.

\b
Examples:
  hawker node forget --dry-run 0badcafe
  hawker node forget 0badcafe
  hawker node forget --force 0badcafe
"""


@click.command("forget", help=_HELP)
@click.argument("node", metavar="NODE", shell_complete=completed("nodes"))
@click.option("--force", is_flag=True, help="Also remove a living node.")
@click.option("--dry-run", is_flag=True, help="Print the consequences and change nothing.")
@output_option
@click.pass_context
def command(ctx: click.Context, node: str, force: bool, dry_run: bool, form: Form) -> None:
    gone = talk(ctx, lambda caller: _forget(caller, node, force, dry_run))
    if gone is not None:
        show(gone, form, _forgotten)


async def _forget(caller: Caller, node: str, force: bool, dry_run: bool) -> ForgottenNode | None:
    found = await find_fleet_node(caller, node)
    for line in said_of(found.id, await loss_of(caller, found.id)):
        note(line)
    if dry_run:
        return None
    return await caller.call(FORGET_NODE, params=NodeParams(node_id=found.id), query=ForgetQuery(force=force))


def _forgotten(gone: ForgottenNode) -> str:
    return f"node {gone.node} removed: what it told until now no longer counts"
