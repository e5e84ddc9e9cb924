"""`hawker node drain`: move a node's machines to other nodes, so that it can be taken away."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import DRAIN_NODE, DrainAnswer, NodeParams
from hawker.cli.connect import talk
from hawker.cli.draining import Drained, Mover, Resident
from hawker.cli.exits import ExitStatus
from hawker.cli.moves import limit_option
from hawker.cli.nodes import find_fleet_node
from hawker.cli.options import completed, within_option
from hawker.cli.output import Form, note, output_option, show, table
from hawker.clock import SystemClock
from hawker.ids import NodeId

_HELP = """Disable scheduling on NODE, and move its machines to other nodes of its region. The command orders a copy of
each machine elsewhere, and destroys the machine when its copy runs and its checks pass. Machines of one app move one
after the other.

A machine with a volume moves with it, keeps its id and name, and is off while what the volume stores is copied. Each
copy of another has a new id, and a name made of the old one. Spares of a machine stand by for its copy before the
machine is destroyed; a moved spare stays a spare.

If you interrupt a drain, repeat the command: it continues. Machines without room elsewhere stay, and so do those in
use: each is listed with what to do, and the exit status is 1. `hawker node uncordon` enables scheduling again.

\b
Examples:
  hawker node drain 3f2a
  hawker node drain 3f2a --keep
"""


@click.command("drain", help=_HELP)
@click.argument("node", metavar="NODE", shell_complete=completed("nodes"))
@click.option("--keep", is_flag=True, help="Stop the moved machines, do not destroy them.")
@click.option("--keep-volumes", is_flag=True, help="Leave machines with volumes where they are.")
@limit_option
@within_option
@output_option
@click.pass_context
def command(
    ctx: click.Context, node: str, keep: bool, keep_volumes: bool, limit: int | None, within_s: float, form: Form
) -> int:
    async def drain(caller: Caller) -> list[Drained]:
        found = await find_fleet_node(caller, node)
        answer = await caller.call(DRAIN_NODE, params=NodeParams(node_id=found.id))
        count = len(answer.machines)
        note(f"{found.id} accepts no new machines; {count} machine{'s' * (count != 1)} to move")
        mover = Mover(
            caller,
            SystemClock(),
            NodeId(found.id),
            note,
            within_s=within_s,
            keep=keep,
            keep_volumes=keep_volumes,
            limit=limit,
        )
        moved = await mover.move_all(residents_of(answer))
        note(f"{sum(bool(each.copy) for each in moved)} moved, {sum(map(stay, moved))} stay")
        return moved

    moved = talk(ctx, drain)
    show(moved, form, moved_table)
    return ExitStatus.FAILED if any(map(stay, moved)) else ExitStatus.OK


def stay(each: Drained) -> bool:
    """Whether it is still there."""
    return bool(each.why) and not each.gone


def residents_of(answer: DrainAnswer) -> list[Resident]:
    return [Resident(app=machine.app, machine_id=machine.id) for machine in answer.machines]


def moved_table(moved: list[Drained]) -> str:
    if not moved:
        return "nothing to move"
    rows = (
        (each.resident.app, each.resident.machine_id, each.name or "-", each.copy or "-", _outcome(each))
        for each in moved
    )
    return table(("APP", "MACHINE", "NAME", "COPY", "OUTCOME"), rows)


def _outcome(each: Drained) -> str:
    return each.why or (f"moved; {each.note}" if each.note else "moved")
