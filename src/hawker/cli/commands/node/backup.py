"""`hawker node backup` and `restore`: the store of a running node, wherever it is, as a file here; and a backup in the
place of a stopped node's store.
"""

import hashlib
import os
from pathlib import Path

import click

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.node import BACK_UP
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.cli.output import Form, note, output_option, show_change, size
from hawker.clock import SystemClock
from hawker.errors import CannotStart, Fault
from hawker.place import Place, default_data_dir
from hawker.store.restore import restore_store

_HELP = """Copy the store of a running node to FILE. The node keeps running; the copy is of one moment.

The copy has all records of the node's machines, with secret values in their environment: only its owner may read the
file. It has no images, no logs and no data that machines have written.

\b
Examples:
  hawker node backup node.db
  hawker node backup --force /backups/node.db
"""


@click.command("backup", help=_HELP)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@output_option
@click.pass_context
def backup_command(ctx: click.Context, file: Path, force: bool, form: Form) -> None:
    _refuse_present(file, force)
    draft = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        written = talk(ctx, lambda caller: _download(caller, draft))
        _refuse_present(file, force)
        draft.replace(file)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    show_change(form, f"{file}: {size(written)}", file=str(file), size_bytes=written)


def _refuse_present(file: Path, force: bool) -> None:
    if file.exists() and not force:
        raise Failure(f"{file} exists: choose another name, or replace it with --force")


async def _download(caller: Caller, draft: Path) -> int:
    """How many bytes it has, once they are on disk. Raises `Fault` when not all came, or not what was sent."""
    with os.fdopen(_private(draft), "wb") as opened:
        digest, count, sent = hashlib.sha256(), 0, None
        async with caller.stream(BACK_UP) as parts:
            async for part in parts:
                opened.write(part.data)
                digest.update(part.data)
                count += len(part.data)
                sent = part.sha256 or sent
        if sent != digest.hexdigest():
            raise Fault("the copy was damaged in transit: try again")
        opened.flush()
        os.fsync(opened.fileno())
    return count


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


_RESTORE_HELP = """Replace a stopped node's store with the backup FILE. The replaced store is kept beside it.

At its next start the node takes over running machines as they are. It removes machines that were created after the
backup, brings back machines that were destroyed since, stopped, and reverts other changes.

\b
Examples:
  hawker node restore node.db
  hawker node restore node.db --data-dir ./node
"""


@click.command("restore", help=_RESTORE_HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), metavar="PATH",
              help="The node's data directory; HAWKER_DATA_DIR, or /var/lib/hawker for root.")  # fmt: skip
@output_option
def restore_command(file: Path, data_dir: Path | None, form: Form) -> None:
    place = Place((data_dir or Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir())).absolute())
    if not place.root.is_dir():
        raise CannotStart(f"no data directory {place.root}: name it with --data-dir")
    with place.held():
        replaced = restore_store(file.absolute(), place.store, f"{instant(SystemClock().now()):%Y%m%dT%H%M%SZ}")
    if replaced is not None:
        note(f"the replaced store is {replaced}")
    show_change(
        form,
        f"restored {place.store}; start the node with `hawker up`",
        restored=str(place.store),
        replaced=None if replaced is None else str(replaced),
    )
