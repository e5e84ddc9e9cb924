"""`hawker volumes snapshots`: list them, take one, restore one into a new volume."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    FIND_SNAPSHOT,
    LIST_SNAPSHOTS,
    CreateVolumeRequest,
    SnapshotParams,
    VolumeSnapshot,
)
from hawker.cli.commands.volumes.create import ordered, say
from hawker.cli.connect import talk
from hawker.cli.options import app_option, wait_option, within_option
from hawker.cli.output import Form, output_option, show
from hawker.cli.progress import states_display
from hawker.cli.volumes import (
    Keeping,
    OwnedVolume,
    find_volume,
    keeping_options,
    size_option,
    snapshots,
    taken,
    volume_argument,
)
from hawker.clock import SystemClock


@click.group("snapshots", no_args_is_help=True)
def command() -> None:
    """List, take and restore snapshots.

    \b
    Examples:
      hawker volumes snapshots create data
      hawker volumes snapshots list data
      hawker volumes snapshots restore vs_0123456789abcdef --name data
    """


@command.command("list")
@volume_argument
@app_option
@output_option
@click.pass_context
def list_snapshots(ctx: click.Context, volume: str, app: str | None, form: Form) -> None:
    """List the snapshots of VOLUME, newest first."""

    async def look(caller: Caller) -> tuple[VolumeSnapshot, ...]:
        return await caller.call(LIST_SNAPSHOTS, params=(await find_volume(caller, volume, app)).params)

    show(talk(ctx, look), form, lambda answer: snapshots(answer, instant(SystemClock().now())))


@command.command("create")
@volume_argument
@app_option
@wait_option
@within_option
@output_option
@click.pass_context
def create_snapshot(ctx: click.Context, volume: str, app: str | None, wait: bool, within_s: float, form: Form) -> None:
    """Take a snapshot of VOLUME, which may be in use, and print its id."""

    async def take(caller: Caller) -> VolumeSnapshot:
        found = await find_volume(caller, volume, app)
        made = (await caller.call(CREATE_SNAPSHOT, params=found.params)).Msg.backup
        if not wait:
            return made
        with states_display(f"snapshot {made.id}") as show_state:
            return await taken(caller, found.params, made.id, SystemClock(), within_s, show_state)

    show(talk(ctx, take), form, lambda snapshot: snapshot.id)


@command.command("restore")
@click.argument("snapshot", metavar="SNAPSHOT")
@app_option
@click.option("-n", "--name", metavar="NAME", default="restored", show_default=True, help="The new volume's name.")
@size_option
@keeping_options
@wait_option
@within_option
@output_option
@click.pass_context
def restore_snapshot(
    ctx: click.Context,
    snapshot: str,
    app: str | None,
    name: str,
    size: int | None,
    keeping: Keeping,
    wait: bool,
    within_s: float,
    form: Form,
) -> None:
    """Create a volume with the content of SNAPSHOT. That works also when its volume is destroyed. Unless told
    otherwise it is in the snapshot's app, and as large as the snapshot's volume was."""
    request = CreateVolumeRequest(
        name=name,
        size_gb=size,
        snapshot_id=snapshot,
        snapshot_retention=keeping.snapshot_retention,
        auto_backup_enabled=keeping.scheduled_snapshots,
    )

    async def restored(caller: Caller) -> OwnedVolume:
        params = SnapshotParams(snapshot_id=snapshot)
        target = app or (await caller.call(FIND_SNAPSHOT, params=params)).app
        return await ordered(caller, target, request, within_s if wait else None)

    say(talk(ctx, restored), form)
