"""`hawker volumes key`: the key of a repository of backups, without which none can be restored."""

import os
from pathlib import Path

import click

from hawker.archive.pack import owned
from hawker.backup.repository import BackupRepository, read_passphrase
from hawker.cli.commands.volumes.repository import disk_errors, on_repository, repository_options
from hawker.cli.exits import Failure
from hawker.cli.output import Form, note, output_option, show_change

_FILE = click.Path(path_type=Path, dir_okay=False)
_new_passphrase = click.option(
    "--new-passphrase-file", type=_FILE, help="A file whose first line is to open the key that is written."
)


@click.group("key", no_args_is_help=True)
def command() -> None:
    """The key of a repository of backups. It is sealed under a passphrase, wherever it is."""


@command.command("export")
@click.argument("where", metavar="URL")
@click.argument("file", metavar="FILE", type=_FILE)
@_new_passphrase
@repository_options
@output_option
def export_key(
    where: str,
    file: Path,
    new_passphrase_file: Path | None,
    passphrase_file: Path,
    endpoint: str | None,
    region: str | None,
    form: Form,
) -> None:
    """Write the sealed key of a repository to a new FILE.

    It is under the repository's passphrase or under another one. Keep it in another place: with it, backups whose place
    lost its `config` can be restored.
    """
    if file.exists():
        raise Failure(f"{file} is there already")

    async def run(repository: BackupRepository) -> bytes:
        return await repository.key_under(None if new_passphrase_file is None else read_passphrase(new_passphrase_file))

    key = on_repository(where, endpoint, region, passphrase_file, run)
    with disk_errors(file), owned(file) as stream:
        stream.write(key)
        stream.flush()
        os.fsync(stream.fileno())
    note(f"the key of {where} is in {file}")
    show_change(form, None, file=str(file))


@command.command("import")
@click.argument("where", metavar="URL")
@click.argument("file", metavar="FILE", type=_FILE)
@repository_options
@output_option
def import_key(
    where: str, file: Path, passphrase_file: Path, endpoint: str | None, region: str | None, form: Form
) -> None:
    """Put an exported key back into a repository without one.

    The passphrase is the one that the key in FILE was exported under; nodes need that one from then on.
    """

    try:
        key = file.read_bytes()
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}") from error

    async def run(repository: BackupRepository) -> None:
        await repository.put_key(key)

    on_repository(where, endpoint, region, passphrase_file, run)
    note(f"{where} has its key again")
    show_change(form, None, url=where)


@command.command("passphrase")
@click.argument("where", metavar="URL")
@click.option("--new-passphrase-file", type=_FILE, required=True, help="A file whose first line is the new passphrase.")
@repository_options
@output_option
def change_passphrase(
    where: str,
    new_passphrase_file: Path,
    passphrase_file: Path,
    endpoint: str | None,
    region: str | None,
    form: Form,
) -> None:
    """Seal the key of a repository under another passphrase.

    Nodes that run go on; each needs the new one at its next start. Whoever has a copy of the old `config` and the old
    passphrase can still read the backups.
    """

    async def run(repository: BackupRepository) -> None:
        await repository.change_passphrase(read_passphrase(new_passphrase_file))

    on_repository(where, endpoint, region, passphrase_file, run)
    note(f"the backups in {where} have another passphrase")
    show_change(form, None, url=where)
