"""`hawker node restore`: a backup in the place of a stopped node's store. The one command that works on files."""

import os
from pathlib import Path

import click

from hawker.api.contract.body import instant
from hawker.cli.output import Form, note, output_option, show_change
from hawker.clock import SystemClock
from hawker.errors import CannotStart
from hawker.place import Place, default_data_dir
from hawker.store.restore import restore_store

_HELP = """Replace a stopped node's store with the backup FILE. The replaced store is kept beside it.

At its next start the node takes over running machines as they are. It removes machines that were created after the
backup, brings back machines that were destroyed since, stopped, and reverts other changes.

\b
Examples:
  hawker node restore node.db
  hawker node restore node.db --data-dir ./node
"""


@click.command("restore", help=_HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), metavar="PATH",
              help="The node's data directory; HAWKER_DATA_DIR, or /var/lib/hawker for root.")  # fmt: skip
@output_option
def command(file: Path, data_dir: Path | None, form: Form) -> None:
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
