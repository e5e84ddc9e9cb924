"""`hawker volumes backup`, `backups` and `restore`, through a node."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.volume import (
    CREATE_BACKUP,
    GET_BACKUP,
    LIST_BACKUPS,
    BackupParams,
    BackupState,
    CreateVolumeRequest,
    KeptBackup,
    VolumeBackup,
    VolumeParams,
)
from hawker.cli.commands.volumes.create import created, say
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.options import DEFAULT_APP, app_option, completed, wait_option, within_option
from hawker.cli.output import Form, age, fields, local, note, output_option, show, size, table
from hawker.cli.progress import states_display
from hawker.cli.volumes import Keeping, find_volume, keeping_options, size_option, volume_argument
from hawker.clock import Clock, SystemClock

_LOOKS_S = (0.1, 0.3, 1.0)  # between two looks; the last one from then on


@click.command("backup")
@volume_argument
@app_option
@wait_option
@within_option
@output_option
@click.pass_context
def backup_volume(
    ctx: click.Context, volume: str, app: str | None, wait: bool, within_s: float, form: Form
) -> int | None:
    """Back VOLUME up, which may be in use, to where its node's backups go, and print the backup's name. Of what was
    saved before, nothing is sent again. Ctrl-C ends the wait, not the backup."""
    begun = list[tuple[VolumeParams, VolumeBackup]]()

    async def begin(caller: Caller) -> VolumeBackup:
        params = (await find_volume(caller, volume, app)).params
        backup = await caller.call(CREATE_BACKUP, params=params)
        begun.append((params, backup))
        return await _saved(caller, params, backup, SystemClock(), within_s) if wait else backup

    try:
        made = talk(ctx, begin)
    except KeyboardInterrupt:
        for params, backup in begun:
            look = f"`hawker volumes backups -a {params.app_name}` lists it once it is whole"
            note(f"backup {backup.backup} goes on: {look}")
        return ExitStatus.INTERRUPTED
    show(made, form, lambda backup: backup.backup)
    if made.sent_bytes is not None and made.stored_bytes is not None:
        note(f"{size(made.stored_bytes)} stored, {size(made.sent_bytes)} sent")
    return None


async def _saved(
    caller: Caller, volume: VolumeParams, begun: VolumeBackup, clock: Clock, within_s: float
) -> VolumeBackup:
    """The backup once it is whole. Raises `Failure`; what was begun goes on without whoever waits."""
    deadline, looks = clock.monotonic() + within_s, iter(_LOOKS_S)
    params = BackupParams(app_name=volume.app_name, volume_id=volume.volume_id, snapshot=begun.snapshot)
    with states_display(f"backup {begun.backup}") as show_state:
        while True:
            found = await caller.call(GET_BACKUP, params=params)
            if found.state is BackupState.CREATED:
                return found
            if found.state is BackupState.FAILED:
                raise Failure(f"backup {found.backup} failed: {found.error}")
            show_state(found.state)
            if clock.monotonic() >= deadline:
                raise Failure(f"backup {found.backup} is still {found.state} after {within_s:g} s, and goes on")
            await clock.sleep(next(looks, _LOOKS_S[-1]))


@click.command("backups")
@click.argument("backup", metavar="[BACKUP]", required=False)
@app_option
@output_option
@click.pass_context
def list_backups(ctx: click.Context, backup: str | None, app: str | None, form: Form) -> None:
    """List the backups of an app's volumes, also of volumes that are gone, or show BACKUP (VOLUME/TIME) alone. VERIFIED
    says how long ago all of it was read and was whole; `stale` is one that nobody has read for 30 days."""
    app = app or DEFAULT_APP
    found = talk(ctx, lambda caller: caller.call(LIST_BACKUPS, params=AppParams(app_name=app)))
    if backup is None:
        return show(found, form, _listing)
    named = [each for each in found if each.backup == backup]
    if not named:
        raise Failure(f"there is no backup {backup} of app {app}", ExitStatus.NOT_FOUND)
    return show(named[0], form, _details)


def _listing(backups: tuple[KeptBackup, ...]) -> str:
    rows = ((backup.backup, backup.volume, _verified(backup)) for backup in backups)
    return table(("BACKUP", "VOLUME", "VERIFIED"), rows)


def _verified(backup: KeptBackup) -> str:
    if backup.damage is not None:
        return "damaged"
    seen = "never" if backup.verified_at is None else age(backup.verified_at, instant(SystemClock().now()))
    return f"{seen}, stale" if backup.stale else seen


def _state(backup: KeptBackup) -> str:
    if backup.damage is not None:
        return "damaged"
    if backup.stale:
        return "stale: nobody has read it for 30 days"
    return "not verified yet" if backup.verified_at is None else "whole"


def _details(backup: KeptBackup) -> str:
    return fields(
        (
            ("backup", backup.backup),
            ("volume", backup.volume),
            ("state", _state(backup)),
            ("damage", backup.damage),
            ("verified", None if backup.verified_at is None else local(backup.verified_at)),
            ("restored", None if backup.restored_at is None else local(backup.restored_at)),
        )
    )


@click.command("restore")
@click.argument("backup", metavar="BACKUP")
@app_option
@click.option("-n", "--name", metavar="NAME", default="restored", show_default=True, help="The new volume's name.")
@click.option("-r", "--region", metavar="CODE", shell_complete=completed("regions"), help="The region of the volume.")
@size_option
@keeping_options
@wait_option
@within_option
@output_option
@click.pass_context
def restore_backup(
    ctx: click.Context,
    backup: str,
    app: str | None,
    name: str,
    region: str | None,
    size: int | None,
    keeping: Keeping,
    wait: bool,
    within_s: float,
    form: Form,
) -> None:
    """Create a volume with the content of BACKUP (VOLUME/TIME) of the same app, on any node that has the repository
    and its passphrase. It is as large as the volume was, unless told otherwise."""
    request = CreateVolumeRequest(
        name=name,
        region=region,
        size_gb=size,
        backup=backup,
        snapshot_retention=keeping.snapshot_retention,
        auto_backup_enabled=keeping.scheduled_snapshots,
    )
    say(talk(ctx, lambda caller: created(caller, app, request, within_s if wait else None)), form)
