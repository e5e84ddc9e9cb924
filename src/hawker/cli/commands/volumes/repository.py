"""Commands on a repository of backups, from wherever it and its passphrase are: no node takes part."""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TypeVar

import anyio
import click
import msgspec

from hawker.archive.backend import open_backend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.backup.checks import BackupCheck, BackupChecks
from hawker.backup.format import BackupManifest
from hawker.backup.prune import DAILY, WEEKLY, BackupPruneReport, prune
from hawker.backup.repository import BackupRepository, read_passphrase
from hawker.backup.transfer import compare, restore, verify
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import Form, as_json, note, output_option, show, show_change, size, table
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.host.ext4 import filesystem_damage

T = TypeVar("T")


def repository_options(command: Callable[..., T]) -> Callable[..., T]:
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


def on_repository(
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


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """What this host's disk says of a file, full or not there, as an error that names the place."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{place}: {error.strerror}") from error


class BackupVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`damage` is null for a backup that is whole; `restored` when it was restored and compared."""

    backup: str
    """Its name, ORG/APP/VOLUME/TIME."""
    damage: str | None = None
    restored: bool = False

    def __str__(self) -> str:
        if self.damage is not None:
            return f"damaged: {self.damage}"
        return "whole, and restored" if self.restored else "whole"


@click.command("verify")
@click.argument("where", metavar="URL")
@click.argument("backups", metavar="[BACKUP]...", nargs=-1)
@click.option("--sample", type=click.IntRange(1, 100), default=100, metavar="PERCENT",
              help="Read every list, and so much of the content.")  # fmt: skip
@click.option("--restore", "restored", is_flag=True,
              help="Restore each BACKUP, or the newest of each volume, and check the file.")  # fmt: skip
@click.option("--scratch", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="Where to restore; what is there for it is removed.")  # fmt: skip
@repository_options
@output_option
def verify_backups(
    where: str,
    backups: tuple[str, ...],
    sample: int,
    restored: bool,
    scratch: Path | None,
    passphrase_file: Path,
    endpoint: str | None,
    region: str | None,
    form: Form,
) -> int:
    """Read backups at URL (a directory or s3://BUCKET/PREFIX), open every byte and compare it with its name: all, or
    each BACKUP (ORG/APP/VOLUME/TIME). Needs no node. Prints a line for each, and ends with 1 if one is damaged. What
    was found is written down at URL for whoever lists backups. With --sample another part is read each time, chosen by
    chance. With --restore each is written to a scratch file, which is compared with the backup and checked (e2fsck)."""
    if restored and sample != 100:
        raise Failure("--restore reads all of a backup: leave --sample out")

    async def look(repository: BackupRepository) -> int:
        await repository.keys()  # of a place that is none, nothing is whole
        every = backups or await repository.backups("")
        look_at = _restored(scratch) if restored else _read(sample)
        found = await _verdicts(repository, _newest(every) if restored and not backups else every, look_at, form)
        if form is Form.JSON:
            click.echo(as_json(found))
        await _write_down(repository, found, begun, whole=sample == 100)
        return ExitStatus.FAILED if any(each.damage for each in found) else ExitStatus.OK

    begun = SystemClock().now()
    return on_repository(where, endpoint, region, passphrase_file, look)


_Look = Callable[[BackupRepository, str], Awaitable[BackupVerdict]]


def _read(sample: int) -> _Look:
    chance, seen = SystemClock().random, set[tuple[bytes, int]]()

    async def look(repository: BackupRepository, backup: str) -> BackupVerdict:
        await verify(repository, await repository.manifest(backup), seen, lambda: chance() * 100 < sample)
        return BackupVerdict(backup=backup)

    return look


def _restored(scratch: Path | None) -> _Look:
    async def look(repository: BackupRepository, backup: str) -> BackupVerdict:
        manifest, damage = await repository.manifest(backup), None
        with disk_errors(scratch or Path(gettempdir())), TemporaryDirectory("", "hawker-verify-", scratch) as room:
            file = Path(room) / "volume"
            await restore(repository, manifest, file)
            await compare(repository, manifest, file)
            if manifest.fstype == "ext4" and not manifest.encrypted:
                damage = await filesystem_damage(file, confined=True)
        return BackupVerdict(backup=backup, damage=damage, restored=True)

    return look


def _newest(backups: Sequence[str]) -> list[str]:
    """Of each volume."""
    return list({backup.rpartition("/")[0]: backup for backup in sorted(backups)}.values())


async def _verdicts(
    repository: BackupRepository, backups: Sequence[str], look: _Look, form: Form
) -> list[BackupVerdict]:
    found = []
    for backup in backups:
        try:
            found.append(await look(repository, backup))
        except ArchiveDamaged as error:
            found.append(BackupVerdict(backup=backup, damage=str(error)))
        if form is not Form.JSON:
            click.echo(f"{backup}  {found[-1]}")
    return found


async def _write_down(
    repository: BackupRepository, verdicts: Sequence[BackupVerdict], begun: float, *, whole: bool
) -> None:
    """Where the place may only be read, nothing is."""
    now = SystemClock().now()
    made = {
        each.backup: BackupCheck(damaged_at=now, damage=each.damage)
        if each.damage is not None
        else BackupCheck(verified_at=begun, restored_at=begun if each.restored else None)
        for each in verdicts
        if whole or each.damage is not None
    }
    try:
        if made:
            await repository.add_checks(BackupChecks(backups=made))
    except (ArchiveRefused, Unavailable) as error:
        note(f"the list of backups is not updated: {error}")


@click.command("prune")
@click.argument("where", metavar="URL")
@click.option("--daily", type=click.IntRange(0, 3650), default=DAILY, show_default=True,
              help="Keep the last backup of so many days, of each volume.")  # fmt: skip
@click.option("--weekly", type=click.IntRange(0, 520), default=WEEKLY, show_default=True,
              help="Keep the last backup of so many weeks, of each volume.")  # fmt: skip
@repository_options
@output_option
def prune_backups(
    where: str, daily: int, weekly: int, passphrase_file: Path, endpoint: str | None, region: str | None, form: Form
) -> None:
    """Remove backups at URL (a directory or s3://BUCKET/PREFIX) beyond their retention, and what no backup has. The
    newest backup of a volume always stays. What no backup has is marked, and removed by a prune seven days later.
    Needs no node; refused while a backup is under way."""

    async def run(repository: BackupRepository) -> BackupPruneReport:
        await repository.keys()  # a prune makes no repository of a place that is none
        return await prune(repository, SystemClock().now(), daily=daily, weekly=weekly)

    show(on_repository(where, endpoint, region, passphrase_file, run), form, _pruned)


def _pruned(report: BackupPruneReport) -> str:
    last = f"{report.objects} objects removed, {report.marked} are marked and go in a prune after seven days"
    return "\n".join([*(f"removed backup {backup}" for backup in report.backups), last])


@click.command("extract")
@click.argument("where", metavar="URL")
@click.argument("backup", metavar="BACKUP")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@repository_options
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
        with disk_errors(file):
            try:
                await restore(repository, await repository.manifest(backup), draft)
                draft.rename(file)
            finally:
                draft.unlink(missing_ok=True)

    on_repository(where, endpoint, region, passphrase_file, write)
    note(f"{backup} is in {file}")
    show_change(form, None, backup=backup, file=str(file))


class RepositoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One backup. Sizes are bytes: of the volume, of what is no hole in it, and what the backup added. `damage` is why
    its manifest cannot be read; the sizes are null then."""

    backup: str
    """Its name, ORG/APP/VOLUME/TIME."""
    name: str | None = None
    """That of its volume, which need not be unique."""
    size_bytes: int | None = None
    """Of the volume, as a machine saw it."""
    stored_bytes: int | None = None
    """What is no hole in it."""
    sent_bytes: int | None = None
    """What the backup added to what was there."""
    encrypted: bool | None = None
    """Its volume was encrypted, so it needs a host that can have such volumes."""
    damage: str | None = None


@click.command("contents")
@click.argument("where", metavar="URL")
@repository_options
@output_option
def list_contents(where: str, passphrase_file: Path, endpoint: str | None, region: str | None, form: Form) -> None:
    """List every backup at URL (a directory or s3://BUCKET/PREFIX) with the name and the sizes of its volume. Needs
    no node."""

    async def look(repository: BackupRepository) -> tuple[RepositoryEntry, ...]:
        await repository.keys()
        return tuple([await _entry(repository, each) for each in await repository.backups("")])

    show(on_repository(where, endpoint, region, passphrase_file, look), form, _contents)


async def _entry(repository: BackupRepository, backup: str) -> RepositoryEntry:
    try:
        found: BackupManifest = await repository.manifest(backup)
    except ArchiveDamaged as error:
        return RepositoryEntry(backup=backup, damage=str(error))
    return RepositoryEntry(
        backup=backup,
        name=found.name,
        size_bytes=found.size_bytes,
        stored_bytes=found.stored_bytes,
        sent_bytes=found.sent_bytes,
        encrypted=found.encrypted,
    )


def _contents(entries: tuple[RepositoryEntry, ...]) -> str:
    sizes = [(each.size_bytes, each.stored_bytes, each.sent_bytes) for each in entries]
    return table(
        ("BACKUP", "NAME", "SIZE", "STORED", "SENT"),
        (
            (each.backup, each.name or "damaged", *("-" if count is None else size(count) for count in of_it))
            for each, of_it in zip(entries, sizes, strict=True)
        ),
    )


@click.command("forget")
@click.argument("where", metavar="URL")
@click.argument("backups", metavar="BACKUP...", nargs=-1, required=True)
@repository_options
@output_option
def forget_backups(
    where: str, backups: tuple[str, ...], passphrase_file: Path, endpoint: str | None, region: str | None, form: Form
) -> None:
    """Remove each BACKUP (ORG/APP/VOLUME/TIME) at URL, also one that is damaged. It cannot be undone. The space of
    what no other backup has comes free with `hawker volumes prune`. Needs no node."""

    async def run(repository: BackupRepository) -> None:
        await repository.keys()
        missing = sorted(set(backups) - set(await repository.backups("")))
        if missing:
            raise Failure(
                f"there is no backup {', '.join(missing)} in {repository.name}: none is removed", ExitStatus.NOT_FOUND
            )
        for backup in backups:
            await repository.remove_backup(backup)
            note(f"removed backup {backup}")

    on_repository(where, endpoint, region, passphrase_file, run)
    show_change(form, None, backups=list(backups))
