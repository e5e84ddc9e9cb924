"""`hawker node cordon`, `drain`, `evacuate` and `forget`: a node takes no new machines, gives its machines to others,
loses all that is on a dying disk to them, or is removed when it will not come back.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import click

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.cluster import (
    CORDON_NODE,
    DRAIN_NODE,
    FORGET_NODE,
    UNCORDON_NODE,
    DrainAnswer,
    FleetNode,
    ForgetQuery,
    ForgottenNode,
    NodeParams,
)
from hawker.api.contract.move import LIST_MOVES, MOVE_FREE_VOLUME, ListMovesQuery, Move, MoveRequest
from hawker.api.contract.volume import (
    CREATE_BACKUP,
    GET_BACKUP,
    LIST_BACKUPS,
    BackupParams,
    BackupState,
    KeptBackup,
)
from hawker.api.route import NoQuery, Unary
from hawker.cli import moves
from hawker.cli.connect import talk
from hawker.cli.draining import Drained, Mover, Resident
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.moves import limit_option
from hawker.cli.nodes import find_fleet_node, loss_of, said_of
from hawker.cli.options import completed, within_option
from hawker.cli.output import Form, note, output_option, show, size, table
from hawker.cli.volumes import OwnedVolume, free_of, volumes_on
from hawker.clock import Clock, SystemClock
from hawker.errors import HawkerError, NotServed
from hawker.ids import NodeId
from hawker.record.move import SCHEDULED
from hawker.value_object import ValueObject


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


_cold_start_option = click.option(
    "--cold-start",
    is_flag=True,
    help="Drop the memory of suspended machines where it cannot go along: they are stopped there.",
)

_HELP = """Disable scheduling on NODE, and move its machines to other nodes of its region. The command orders a copy of
each machine elsewhere, and destroys the machine when its copy runs and its checks pass. Machines of one app move one
after the other.

A machine with a volume, or one that keeps its root filesystem, moves with it, keeps its id and name, and is off while
the blocks that it wrote during the copy are copied once more. A suspended microVM moves with its memory. Each copy of
another machine has a new id, and a name made of the old one. Spares of a machine stand by for its copy before the
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
@_cold_start_option
@within_option
@output_option
@click.pass_context
def drain_command(
    ctx: click.Context,
    node: str,
    keep: bool,
    keep_volumes: bool,
    limit: int | None,
    cold_start: bool,
    within_s: float,
    form: Form,
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
            cold_start=cold_start,
        )
        moved = await mover.move_all(residents_of(answer))
        note(f"{sum(bool(each.copy) for each in moved)} moved, {sum(map(stay, moved))} stay")
        if any(map(stay, moved)):
            note(f"`hawker node uncordon {found.id}` lets the node accept new machines again")
        free = [each.volume.id for each in free_of(await volumes_on(caller, NodeId(found.id)))]
        if free:
            note(
                f"no machine has {', '.join(free)}, and a drain leaves such volumes here:"
                " `hawker volumes move VOLUME --to-node NODE` moves one"
            )
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


UNLIMITED_MIB_PER_S = 1 << 20
RECENT = timedelta(minutes=15)

Say = Callable[[str], None]


_EVACUATE_HELP = """\
Disable scheduling on NODE, whose disk is dying, and take everything off it: its machines, and the volumes
that no machine has, to other nodes of its region. The smallest leaves first, one at a time, and the copy has no limit.

Where backups have a place, each volume without a backup of the last 15 minutes is backed up first. A volume that
cannot be read is not moved: it stays, and its row says why. With --accept-loss it is moved without what cannot be
read: its row says how much was lost, and nobody uses it before `hawker volumes update --accept-damage`. If you
interrupt the command, repeat it: it continues.

\b
Examples:
  hawker node evacuate 3f2a
"""


@click.command("evacuate", help=_EVACUATE_HELP)
@click.argument("node", metavar="NODE", shell_complete=completed("nodes"))
@_cold_start_option
@moves.accept_loss_option
@within_option
@output_option
@click.pass_context
def evacuate_command(
    ctx: click.Context, node: str, cold_start: bool, accept_loss: bool, within_s: float, form: Form
) -> int:
    async def evacuate(caller: Caller) -> list[Drained]:
        found = await find_fleet_node(caller, node)
        node_id, clock = NodeId(found.id), SystemClock()
        answer = await caller.call(DRAIN_NODE, params=NodeParams(node_id=node_id))
        leaving = evacuees(residents_of(answer), await volumes_on(caller, node_id))
        total = size(sum(each.bytes_used for each in leaving))
        note(f"{node_id} accepts no new machines; {len(leaving)} to move, {total}")
        mover = Mover(
            caller,
            clock,
            node_id,
            note,
            within_s=within_s,
            keep=False,
            limit=UNLIMITED_MIB_PER_S,
            cold_start=cold_start,
            accept_loss=accept_loss,
        )
        evacuation = Evacuation(caller, clock, node_id, mover, note, within_s=within_s, accept_loss=accept_loss)
        moved = await evacuation.run(leaving)
        note(f"{sum(bool(each.copy) for each in moved)} moved, {sum(map(stay, moved))} stay")
        return moved

    moved = talk(ctx, evacuate)
    show(moved, form, moved_table)
    return ExitStatus.FAILED if any(map(stay, moved)) else ExitStatus.OK


class Evacuee(ValueObject, frozen=True, kw_only=True):
    """What leaves: a machine, with its volume if it has one, or a volume that no machine has."""

    resident: Resident | None = None
    volume: OwnedVolume | None = None

    @property
    def bytes_used(self) -> int:
        return 0 if self.volume is None else self.volume.volume.bytes_used or 0


def evacuees(residents: Sequence[Resident], volumes: Sequence[OwnedVolume]) -> list[Evacuee]:
    """The smallest first. Volumes of machines go with them; those that were deleted stay."""
    by_machine = {each.volume.attached_machine_id: each for each in volumes if each.volume.attached_machine_id}
    found = [Evacuee(resident=each, volume=by_machine.get(each.machine_id)) for each in residents]
    return sorted([*found, *(Evacuee(volume=each) for each in free_of(volumes))], key=lambda each: each.bytes_used)


class Evacuation:
    """`say` is told what is being done, for the person who waits. `mover` moves machines of the node."""

    def __init__(
        self,
        caller: Caller,
        clock: Clock,
        node_id: NodeId,
        mover: Mover,
        say: Say,
        *,
        within_s: float,
        accept_loss: bool = False,
    ) -> None:
        self._caller = caller
        self._clock = clock
        self._node_id = node_id
        self._mover = mover
        self._say = say
        self._within_s = within_s
        self._accept_loss = accept_loss

    async def run(self, leaving: Sequence[Evacuee]) -> list[Drained]:
        """What stays is said, and keeps nobody else from leaving."""
        await self._back_up([each.volume for each in leaving if each.volume is not None])
        done: list[Drained] = []
        for number, each in enumerate(leaving, 1):
            self._say(f"{number} of {len(leaving)}: {_name(each)}, {size(each.bytes_used)}")
            done.append(await (self._mover.move(each.resident) if each.resident else self._move_volume(each)))
        return done

    # Backups.

    async def _back_up(self, volumes: Sequence[OwnedVolume]) -> None:
        """Before anything is moved, and only what has no recent one; a disk that cannot be read for it is no reason to
        leave anything there."""
        kept = dict[str, Mapping[str, datetime] | None]()
        for owned in volumes:
            if owned.app not in kept:
                kept[owned.app] = await self._newest(owned.app)
            newest = kept[owned.app]
            if newest is None:
                continue
            oldest = datetime.fromtimestamp(self._clock.now(), UTC) - RECENT
            if newest.get(owned.volume.id, oldest) <= oldest:
                await self._saved(owned)

    async def _newest(self, app: str) -> Mapping[str, datetime] | None:
        """When each volume of the app was backed up last; None where its backups have nowhere to go."""
        try:
            kept = await self._caller.call(LIST_BACKUPS, params=AppParams(app_name=app))
        except NotServed:
            return None
        except HawkerError as error:
            self._say(f"{app}: its backups are not there, and are left out: {error}")
            return None
        found = dict[str, datetime]()
        for each in kept:
            found[each.volume] = max(found.get(each.volume, datetime.min.replace(tzinfo=UTC)), made_at(each))
        return found

    async def _saved(self, owned: OwnedVolume) -> None:
        name = f"{owned.app}: volume {owned.volume.id}"
        try:
            begun = await self._caller.call(CREATE_BACKUP, params=owned.params)
            self._say(f"{name}: backing it up first, {size(owned.volume.bytes_used or 0)}")
            params = BackupParams(app_name=owned.app, volume_id=owned.volume.id, snapshot=begun.snapshot)
            deadline, looks = self._clock.monotonic() + self._within_s, iter(moves.LOOKS_S)
            while begun.state not in (BackupState.CREATED, BackupState.FAILED):
                if self._clock.monotonic() >= deadline:
                    self._say(f"{name}: the backup goes on, and is not waited for any more")
                    return
                await self._clock.sleep(next(looks, moves.LOOKS_S[-1]))
                begun = await self._caller.call(GET_BACKUP, params=params)
            if begun.state is BackupState.FAILED:
                self._say(f"{name}: it could not be backed up, and is moved all the same: {begun.error}")
        except HawkerError as error:
            self._say(f"{name}: it could not be backed up, and is moved all the same: {error}")

    # Volumes that no machine has.

    async def _move_volume(self, each: Evacuee) -> Drained:
        owned = each.volume
        assert owned is not None, "what is no machine is a volume"
        resident = Resident(app=owned.app, machine_id=owned.volume.id)

        async def order(accept_loss: bool) -> Move:
            opened = await self._opened(owned)
            if opened is not None:
                return opened
            wish = MoveRequest(
                source=self._node_id, limit_mib_per_s=UNLIMITED_MIB_PER_S, accept_loss=accept_loss or None
            )
            return await self._caller.call(MOVE_FREE_VOLUME, params=owned.params, body=wish)

        def say(text: str) -> None:
            self._say(f"{owned.app}: {text}")

        try:
            done = await moves.completed_move(
                self._caller, order, self._clock, say, accept_loss=self._accept_loss, within_s=self._within_s
            )
        except (HawkerError, Failure) as error:
            self._say(f"{owned.app}: volume {owned.volume.id} stays: {error}")
            return Drained(resident=resident, name=owned.volume.name, why=str(error))
        where = f"to node {done.to}{moves.loss_note(done)}"
        return Drained(resident=resident, name=owned.volume.name, copy=owned.volume.id, note=where)

    async def _opened(self, owned: OwnedVolume) -> Move | None:
        """The move of an earlier evacuation, which the nodes go on with."""
        found = await self._caller.call(LIST_MOVES, query=ListMovesQuery(app=owned.app, node=self._node_id))
        mine = (each for each in found.moves if (each.volume, each.node) == (owned.volume.id, self._node_id))
        return next((each for each in mine if each.state not in {SCHEDULED, *moves.ENDED}), None)


def made_at(backup: KeptBackup) -> datetime:
    """As the name of the backup says, `VOLUME/20260102T030405Z-00ff`; long ago where it says nothing."""
    try:
        return datetime.strptime(backup.backup.rpartition("/")[2].partition("-")[0], "%Y%m%dT%H%M%SZ").replace(
            tzinfo=UTC
        )
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _name(each: Evacuee) -> str:
    if each.resident is not None:
        return f"machine {each.resident.machine_id} of {each.resident.app}"
    assert each.volume is not None, "what is no machine is a volume"
    return f"volume {each.volume.volume.id} of {each.volume.app}"


_FORGET_HELP = """\
Remove a node that will not come back. Every node drops its rows from the catalog: its machines are no longer
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


@click.command("forget", help=_FORGET_HELP)
@click.argument("node", metavar="NODE", shell_complete=completed("nodes"))
@click.option("--force", is_flag=True, help="Also remove a living node.")
@click.option("--dry-run", is_flag=True, help="Print the consequences and change nothing.")
@output_option
@click.pass_context
def forget_command(ctx: click.Context, node: str, force: bool, dry_run: bool, form: Form) -> None:
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
    return f"node {gone.node} removed: what it told until now is ignored"
