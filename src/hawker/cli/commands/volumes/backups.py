"""`hawker volumes backup`, `backups` and `restore` through a node; `verify` and `extract` without one, from wherever
the repository and its passphrase are.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import anyio
import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
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
from hawker.archive.backend import open_backend
from hawker.archive.failure import ArchiveDamaged
from hawker.backup.prune import DAILY, WEEKLY, BackupPruneReport, prune
from hawker.backup.repository import BackupRepository, read_passphrase
from hawker.backup.transfer import restore, verify
from hawker.cli.commands.volumes.create import created, say
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.options import DEFAULT_APP, app_option, completed, wait_option, within_option
from hawker.cli.output import Form, as_json, note, output_option, show, show_change, table
from hawker.cli.progress import states_display
from hawker.cli.volumes import Keeping, find_volume, keeping_options, size_option, volume_argument
from hawker.clock import Clock, SystemClock

_LOOKS_S = 1.0
_MIB = 1 << 20

T = TypeVar("T")


@click.command("backup")
@volume_argument
@app_option
@wait_option
@within_option
@output_option
@click.pass_context
def backup_volume(ctx: click.Context, volume: str, app: str | None, wait: bool, within_s: float, form: Form) -> None:
    """Back VOLUME up, which may be in use, to where its node's backups go, and print the backup's name. Of what was
    saved before, nothing is sent again."""

    async def begin(caller: Caller) -> VolumeBackup:
        found = await find_volume(caller, volume, app)
        begun = await caller.call(CREATE_BACKUP, params=found.params)
        return await _saved(caller, found.params, begun, SystemClock(), within_s) if wait else begun

    made = talk(ctx, begin)
    show(made, form, lambda backup: backup.backup)
    if made.sent_bytes is not None and made.stored_bytes is not None:
        note(f"{made.stored_bytes / _MIB:.1f} MiB stored, {made.sent_bytes / _MIB:.1f} MiB sent")


async def _saved(
    caller: Caller, volume: VolumeParams, begun: VolumeBackup, clock: Clock, within_s: float
) -> VolumeBackup:
    """The backup once it is whole. Raises `Failure`; what was begun goes on without whoever waits."""
    deadline = clock.monotonic() + within_s
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
            await clock.sleep(_LOOKS_S)


@click.command("backups")
@app_option
@output_option
@click.pass_context
def list_backups(ctx: click.Context, app: str | None, form: Form) -> None:
    """List the backups of an app's volumes, also of volumes that are gone."""

    async def look(caller: Caller) -> tuple[KeptBackup, ...]:
        return await caller.call(LIST_BACKUPS, params=AppParams(app_name=app or DEFAULT_APP))

    show(talk(ctx, look), form, _listing)


def _listing(backups: tuple[KeptBackup, ...]) -> str:
    return table(("BACKUP", "VOLUME"), ((backup.backup, backup.volume) for backup in backups))


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


def _repository_options(command: Callable[..., T]) -> Callable[..., T]:
    for option in (
        click.option("--region", metavar="REGION", help="The region of the S3 bucket."),
        click.option("--endpoint", metavar="URL", help="The URL of an S3 service other than AWS."),
        click.option(
            "--passphrase-file",
            required=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="A file whose first line opens the backups.",
        ),
    ):
        command = option(command)
    return command


def _reading(
    where: str,
    endpoint: str | None,
    region: str | None,
    passphrase: Path,
    act: Callable[[BackupRepository], Awaitable[T]],
) -> T:
    async def run() -> T:
        place = open_backend(where, endpoint=endpoint, region=region, environ=os.environ, base=Path.cwd())
        with TemporaryDirectory(prefix="hawker-backup-") as scratch:
            return await act(
                BackupRepository(place, Path(scratch) / "way", lambda: read_passphrase(passphrase), SystemClock())
            )

    return anyio.run(run)


class BackupVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`damage` is null for a backup that is whole."""

    backup: str
    damage: str | None = None

    def __str__(self) -> str:
        return "whole" if self.damage is None else f"damaged: {self.damage}"


@click.command("verify")
@click.argument("where", metavar="URL")
@click.argument("backups", metavar="[BACKUP]...", nargs=-1)
@_repository_options
@output_option
def verify_backups(
    where: str, backups: tuple[str, ...], passphrase_file: Path, endpoint: str | None, region: str | None, form: Form
) -> int:
    """Read backups at URL (a directory or s3://BUCKET/PREFIX), open every byte and compare it with its name: all, or
    each BACKUP (ORG/APP/VOLUME/TIME). Needs no node. Prints a line for each, and ends with 1 if one is damaged."""

    async def look(repository: BackupRepository) -> int:
        seen: set[tuple[bytes, int]] = set()
        found = []
        for backup in backups or await repository.backups(""):
            try:
                await verify(repository, await repository.manifest(backup), seen)
                found.append(BackupVerdict(backup=backup))
            except ArchiveDamaged as error:
                found.append(BackupVerdict(backup=backup, damage=str(error)))
            if form is not Form.JSON:
                click.echo(f"{backup}  {found[-1]}")
        if form is Form.JSON:
            click.echo(as_json(found))
        return ExitStatus.FAILED if any(each.damage for each in found) else ExitStatus.OK

    return _reading(where, endpoint, region, passphrase_file, look)


@click.command("prune")
@click.argument("where", metavar="URL")
@click.option("--daily", type=click.IntRange(0, 3650), default=DAILY, show_default=True,
              help="Keep the last backup of so many days, of each volume.")  # fmt: skip
@click.option("--weekly", type=click.IntRange(0, 520), default=WEEKLY, show_default=True,
              help="Keep the last backup of so many weeks, of each volume.")  # fmt: skip
@_repository_options
@output_option
def prune_backups(
    where: str, daily: int, weekly: int, passphrase_file: Path, endpoint: str | None, region: str | None, form: Form
) -> None:
    """Remove backups at URL (a directory or s3://BUCKET/PREFIX) beyond their retention, and what no backup has. The
    newest backup of a volume always stays. What no backup has is marked, and removed by a prune seven days later.
    Needs no node; refused while a backup is under way."""

    async def run(repository: BackupRepository) -> BackupPruneReport:
        return await prune(repository, SystemClock().now(), daily=daily, weekly=weekly)

    show(_reading(where, endpoint, region, passphrase_file, run), form, _pruned)


def _pruned(report: BackupPruneReport) -> str:
    last = f"{report.objects} objects removed, {report.marked} are marked and go in a prune after seven days"
    return "\n".join([*(f"removed backup {backup}" for backup in report.backups), last])


@click.command("extract")
@click.argument("where", metavar="URL")
@click.argument("backup", metavar="BACKUP")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@_repository_options
@output_option
def extract_backup(
    where: str, backup: str, file: Path, passphrase_file: Path, endpoint: str | None, region: str | None, form: Form
) -> None:
    """Write the blocks of BACKUP (ORG/APP/VOLUME/TIME) at URL to a new sparse FILE, which a loop device mounts. Needs
    no node. An encrypted volume stays encrypted."""
    if file.exists():
        raise Failure(f"{file} is there already")

    async def write(repository: BackupRepository) -> None:
        draft = file.with_name(f"{file.name}.partial")
        try:
            await restore(repository, await repository.manifest(backup), draft)
            draft.rename(file)
        finally:
            draft.unlink(missing_ok=True)

    _reading(where, endpoint, region, passphrase_file, write)
    note(f"{backup} is in {file}")
    show_change(form, None, backup=backup, file=str(file))
