"""`hawker node drain`: move a node's machines to other nodes, so that it can be taken away."""

import click

from hawker.api.bodies import DrainAnswer
from hawker.api.caller import Caller
from hawker.api.routes.cluster import DRAIN_NODE, NodeParams
from hawker.cli.connect import talk
from hawker.cli.draining import Moved, Mover, Resident
from hawker.cli.exits import Exit
from hawker.cli.nodes import find_fleet_node
from hawker.cli.options import within_option
from hawker.cli.output import Form, note, output_option, show
from hawker.cli.tables import table
from hawker.clock import SystemClock
from hawker.ids import NodeId

_HELP = """Have NODE take no new machines, and move those that it has to other nodes of its region: each is ordered
elsewhere, and goes here once its copy runs and its checks pass. Machines of one app move one after the other.

Each copy has an id of its own, and a name made of the old one. A drain that was cut short is taken up by the same
command. Machines with volumes stay, and are named; so are those for which there is no room. `hawker node uncordon` ends
it.

\b
Examples:
  hawker node drain 3f2a
  hawker node drain 3f2a --keep
"""


@click.command("drain", help=_HELP)
@click.argument("node", metavar="NODE")
@click.option("--keep", is_flag=True, help="Only stop what was moved; it is destroyed otherwise.")
@within_option
@output_option
@click.pass_context
def command(ctx: click.Context, node: str, keep: bool, within_s: float, form: Form) -> int:
    async def drain(caller: Caller) -> list[Moved]:
        found = await find_fleet_node(caller, node)
        answer = await caller.call(DRAIN_NODE, params=NodeParams(node_id=found.id))
        note(f"{found.id} takes no new machines; {len(answer.machines)} to move")
        mover = Mover(caller, SystemClock(), NodeId(found.id), note, within_s=within_s, keep=keep)
        return await mover.move_all(residents_of(answer))

    moved = talk(ctx, drain)
    show(moved, form, moved_table)
    return Exit.FAILED if any(each.why and not each.gone for each in moved) else Exit.OK


def residents_of(answer: DrainAnswer) -> list[Resident]:
    return [Resident(app=machine.app, machine_id=machine.id) for machine in answer.machines]


def moved_table(moved: list[Moved]) -> str:
    if not moved:
        return "nothing to move"
    rows = (
        (each.resident.app, each.resident.machine_id, each.name or "-", each.copy or "-", each.why or "moved")
        for each in moved
    )
    return table(("APP", "MACHINE", "NAME", "NOW", "OUTCOME"), rows)
