"""`hawker volumes update`, `extend`, `move`, `detach`, `destroy` and `undelete`: what may be changed of a volume, and
its end. The last three take several volumes.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import click

from hawker.api.caller import Caller
from hawker.api.contract.move import MOVE_FREE_VOLUME, Move
from hawker.api.contract.volume import (
    DELETE_VOLUME,
    DETACH_VOLUME,
    EXTEND_VOLUME,
    MOVE_VOLUME,
    UNDELETE_VOLUME,
    UPDATE_VOLUME,
    ExtendVolumeAnswer,
    ExtendVolumeRequest,
    MoveVolumeRequest,
    UpdateVolumeRequest,
)
from hawker.cli import moves
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus
from hawker.cli.notation import Written
from hawker.cli.options import app_option, completed, wait_option, within_option
from hawker.cli.output import Form, as_json, note, output_option, show
from hawker.cli.progress import states_display
from hawker.cli.several import change_each
from hawker.cli.volumes import (
    Keeping,
    OwnedVolume,
    SizeAsked,
    about,
    find_volume,
    keeping_options,
    ready,
    size_gib,
    volume_argument,
    volumes_argument,
)
from hawker.clock import SystemClock


@click.command("update")
@volume_argument
@app_option
@keeping_options
@click.option("--accept-damage", is_flag=True, help="Use it with what is left of it; its next mount repairs it.")
@output_option
@click.pass_context
def update(ctx: click.Context, volume: str, app: str | None, keeping: Keeping, accept_damage: bool, form: Form) -> None:
    """Switch daily snapshots of VOLUME, and set how long new ones are kept; or accept what was lost of it."""
    if keeping == Keeping(snapshot_retention=None, scheduled_snapshots=None) and not accept_damage:
        raise click.UsageError(
            "nothing to change: give --snapshot-retention, --[no-]scheduled-snapshots or --accept-damage"
        )
    body = UpdateVolumeRequest(
        snapshot_retention=keeping.snapshot_retention,
        auto_backup_enabled=keeping.scheduled_snapshots,
        accept_damage=accept_damage or None,
    )

    async def change(caller: Caller) -> OwnedVolume:
        found = await find_volume(caller, volume, app)
        return OwnedVolume(found.app, await caller.call(UPDATE_VOLUME, params=found.params, body=body))

    changed = talk(ctx, change)
    click.echo(about(changed) if form is Form.TABLE else as_json(changed.volume))


@click.command("extend")
@volume_argument
@app_option
@click.option("-s", "--size", required=True, metavar="GIB", type=Written(size_gib, "size"),
              help="The new size in GiB, or an increase such as +5.")  # fmt: skip
@wait_option
@within_option
@output_option
@click.pass_context
def extend(
    ctx: click.Context, volume: str, app: str | None, size: SizeAsked, wait: bool, within_s: float, form: Form
) -> None:
    """Make VOLUME larger, also while a machine uses it. A volume never shrinks."""

    async def change(caller: Caller) -> tuple[OwnedVolume, ExtendVolumeAnswer]:
        found = await find_volume(caller, volume, app)
        body = ExtendVolumeRequest(size_gb=size.gib + (found.volume.size_gb if size.more else 0))
        answer = await caller.call(EXTEND_VOLUME, params=found.params, body=body)
        changed = answer.volume
        if wait:
            with states_display(f"volume {changed.id}") as show_state:
                changed = await ready(caller, found.params, SystemClock(), within_s, show_state)
        return OwnedVolume(found.app, changed), answer

    changed, answer = talk(ctx, change)
    click.echo(about(changed) if form is Form.TABLE else as_json(changed.volume))
    if answer.needs_restart and changed.volume.attached_machine_id:
        note(f"the new size shows after a restart: hawker machine restart {changed.volume.attached_machine_id}")
    for holder in answer.held_by:
        note(f"{holder} holds the file system as it was: end or restart it first")


@click.command("move")
@volume_argument
@app_option
@click.option("--to", "target", metavar="APP", shell_complete=completed("apps"), help="The app that is to have it.")
@click.option(
    "--to-node", "node", metavar="NODE", shell_complete=completed("nodes"), help="The node that is to have it."
)
@moves.limit_option
@moves.at_option
@moves.window_option
@moves.accept_loss_option
@moves.dry_run_option
@moves.reclaim_option
@moves.now_option
@moves.detach_option
@output_option
@click.pass_context
def move(
    ctx: click.Context,
    volume: str,
    app: str | None,
    target: str | None,
    node: str | None,
    limit: int | None,
    at: datetime | None,
    window: str | None,
    accept_loss: bool,
    dry_run: bool,
    reclaim: bool,
    now: bool,
    detach: bool,
    form: Form,
) -> None:
    """Move VOLUME, which no machine has, to another node; or, with its snapshots, to another app of the same
    organization. One that a machine has moves with it: `hawker machine move`."""
    moves.check_reclaim(ctx, reclaim=reclaim, with_it=("app", "detach", "form"))
    if (target is None) == (node is None) and not reclaim:
        raise click.UsageError("give either --to APP or --to-node NODE")
    if dry_run and node is None:
        raise click.UsageError("--dry-run is for --to-node: nothing is copied for another app")
    if (at is not None or window is not None) and node is None:
        raise click.UsageError("--at and --window are for --to-node")
    if accept_loss and node is None and not reclaim:
        raise click.UsageError("--accept-loss is for --to-node: nothing is read for another app")

    async def take_back(caller: Caller) -> Move:
        made = await moves.reclaimed(caller, volume, accept_loss=accept_loss, now=now)
        return made if detach else await moves.follow(caller, made, SystemClock())

    async def to_app(caller: Caller) -> OwnedVolume:
        found = await find_volume(caller, volume, app)
        body = MoveVolumeRequest(app=target or "")
        return OwnedVolume(target or "", await caller.call(MOVE_VOLUME, params=found.params, body=body))

    async def to_node(caller: Caller) -> Move:
        wish = await moves.wish_of(
            caller, node, None, "auto", limit, dry_run=dry_run, accept_loss=accept_loss, at=at, window=window
        )
        found = await find_volume(caller, volume, app)
        made = await caller.call(MOVE_FREE_VOLUME, params=found.params, body=wish)
        return made if detach or dry_run else await moves.follow(caller, made, SystemClock())

    if reclaim:
        return show(talk(ctx, take_back), form, moves.about)
    if node is not None:
        return show(talk(ctx, to_node), form, moves.about)
    moved = talk(ctx, to_app)
    click.echo(about(moved) if form is Form.TABLE else as_json(moved.volume))


Act = Callable[[Caller, OwnedVolume], Awaitable[object]]


@click.command("destroy")
@volumes_argument
@app_option
@output_option
@click.pass_context
def destroy(ctx: click.Context, volumes: tuple[str, ...], app: str | None, form: Form) -> int:
    """Destroy volumes that no machine has. `hawker volumes undelete` works for 24 hours; their snapshots are kept for
    their own retention."""
    status = _each(ctx, volumes, app, form, lambda caller, owned: caller.call(DELETE_VOLUME, params=owned.params))
    if status == ExitStatus.OK:
        note("undelete within 24 hours: hawker volumes undelete VOLUME")
    return status


@click.command("detach")
@volumes_argument
@app_option
@output_option
@click.pass_context
def detach(ctx: click.Context, volumes: tuple[str, ...], app: str | None, form: Form) -> int:
    """Detach volumes from their stopped machines, so that others can have them. Such a machine takes its volume back
    when it starts, if that is free then; else it does not start."""
    return _each(ctx, volumes, app, form, lambda caller, owned: caller.call(DETACH_VOLUME, params=owned.params))


@click.command("undelete")
@volumes_argument
@app_option
@output_option
@click.pass_context
def undelete(ctx: click.Context, volumes: tuple[str, ...], app: str | None, form: Form) -> int:
    """Undelete volumes that were destroyed less than 24 hours ago; `hawker volumes list --all` shows them."""
    return _each(ctx, volumes, app, form, lambda caller, owned: caller.call(UNDELETE_VOLUME, params=owned.params))


def _each(ctx: click.Context, references: Sequence[str], app: str | None, form: Form, act: Act) -> int:
    """Prints the id of each volume that `act` did."""

    async def act_on_one(caller: Caller, reference: str) -> str:
        owned = await find_volume(caller, reference, app)
        await act(caller, owned)
        return owned.volume.id

    return talk(ctx, lambda caller: change_each(references, form, lambda reference: act_on_one(caller, reference)))
