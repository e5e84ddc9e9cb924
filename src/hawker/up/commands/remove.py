"""`hawker node remove`: take a node off its host, and leave nothing of it there."""

import os
import sys
from pathlib import Path

import anyio
import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import DRAIN_NODE, LIST_NODES, NodeParams
from hawker.cli.connect import talk
from hawker.cli.draining import Mover, Resident
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import Form, note, output_option, show_change
from hawker.cli.volumes import free_of, volumes_on
from hawker.clock import SystemClock
from hawker.errors import CannotStart, HawkerError
from hawker.ids import NodeId
from hawker.place import Place, default_data_dir
from hawker.up.removal import Removal

_HELP = """Take the node of this host off it: with --drain move its machines to other nodes first, with --destroy end
them where they are; a node without machines and volumes needs neither. Then stop the daemon, and remove what the node
has on this host: processes, control groups, mounts, loop devices, encrypted devices, interfaces, packet rules, and
its data directory with all volumes, snapshots, images, kernels and the token. That data is gone.

The command asks before it begins. If it is interrupted, repeat it: it finishes. The other nodes of a fleet remember the
node until `hawker node forget`.

\b
Examples:
  hawker node remove --drain
  hawker node remove --destroy --yes --data-dir ./node
"""


@click.command("remove", help=_HELP)
@click.option("--drain", is_flag=True, help="Move its machines elsewhere first; stop if one, or a free volume, stays.")
@click.option("--destroy", is_flag=True, help="Destroy its machines and volumes.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), metavar="PATH",
              help="The node's data directory; HAWKER_DATA_DIR, or /var/lib/hawker for root.")  # fmt: skip
@output_option
@click.pass_context
def command(ctx: click.Context, drain: bool, destroy: bool, yes: bool, data_dir: Path | None, form: Form) -> int:
    if drain and destroy:
        raise click.UsageError("say what is to become of its machines: --drain or --destroy, not both")
    place = Place((data_dir or Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir())).absolute())
    if os.geteuid() != 0 and place.root.is_dir() and place.root.stat().st_uid != os.geteuid():
        raise CannotStart(f"the data directory {place.root} is another user's: be that user, or root")
    removal = Removal(place, SystemClock(), note)
    machines = len(list(place.machines.iterdir())) if place.machines.is_dir() else 0
    volumes = len(list(place.volumes.glob("vol_*"))) if place.volumes.is_dir() else 0
    found = f"{machines} machine{'s' * (machines != 1)} and {volumes} volume{'s' * (volumes != 1)}"
    note(f"node {removal.node} in {place.root} has files of {found}")
    if (machines or volumes) and not (drain or destroy):
        raise click.UsageError("say what is to become of its machines and volumes: --drain or --destroy")
    _ask(yes=yes)
    if drain:
        os.environ.setdefault("HAWKER_DATA_DIR", str(place.root))
        talk(ctx, lambda caller: _drain(caller, removal.node))
    others = _others(ctx, place, removal.node)
    anyio.run(removal.run)
    show_change(form, f"node {removal.node} is gone from this host", node=removal.node)
    if others:
        note(f"the fleet remembers it: on another node type `hawker node forget {removal.node}`")
    return ExitStatus.OK


def _ask(*, yes: bool) -> None:
    """Raises `UsageError` where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("nobody to ask: repeat with --yes to remove all of it")
    click.confirm("Remove all of it from this host, for good?", abort=True, err=True)


async def _drain(caller: Caller, node: NodeId) -> None:
    """Raises `Failure` when a machine stays, or a volume that no machine has."""
    answer = await caller.call(DRAIN_NODE, params=NodeParams(node_id=node))
    mover = Mover(caller, SystemClock(), node, note, within_s=300.0, keep=False)
    moved = await mover.move_all([Resident(app=each.app, machine_id=each.id) for each in answer.machines])
    stay = [f"{each.resident.machine_id}: {each.why}" for each in moved if each.why and not each.gone]
    again = f"The node takes no new machines until `hawker node uncordon {node}`"
    if stay:
        raise Failure(f"{len(stay)} machines stay, so nothing was removed: {'; '.join(stay)}. {again}")
    free = ", ".join(each.volume.id for each in free_of(await volumes_on(caller, node)))
    if free:
        ways = "`hawker volumes move VOLUME --to-node NODE` moves one, --destroy removes them with the node"
        raise Failure(f"volumes that no machine has stay, so nothing was removed: {free}. {ways}. {again}")


def _others(ctx: click.Context, place: Place, node: NodeId) -> bool:
    """Whether the node is in a fleet: asked while it still answers, else known by its file."""
    if not place.cluster.exists():
        return False
    try:
        answer = talk(ctx, lambda caller: caller.call(LIST_NODES))
    except (HawkerError, Failure):
        return True
    return any(each.id != node for each in answer.nodes)
