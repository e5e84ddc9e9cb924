"""`hawker node mesh`: this host's end of the tunnels to other hosts. It changes a file, which the node looks at."""

import os
from pathlib import Path

import click

from hawker.cli.exits import ExitStatus
from hawker.cli.output import Form, output_option, show_change
from hawker.errors import CannotStart
from hawker.host.mesh.wireguard import renew_key
from hawker.place import Place, default_data_dir


@click.group("mesh", no_args_is_help=True)
def command() -> None:
    """This host's end of the tunnels to other hosts."""


@command.command("rekey")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), metavar="PATH",
              help="The node's data directory; HAWKER_DATA_DIR, or /var/lib/hawker for root.")  # fmt: skip
@output_option
def rekey(data_dir: Path | None, form: Form) -> int:
    """Give the node of this host another key for its tunnels.

    A node that is up takes it within a second and tells the others; one that is not, when it begins. Packets between
    this host and others may be lost for some five seconds, and connections go on. The old key is gone: the others
    believe it no more.

    \b
    Examples:
      hawker node mesh rekey
      hawker node mesh rekey --data-dir ./node
    """
    place = Place((data_dir or Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir())).absolute())
    if not place.mesh_key.exists():
        text = "has no tunnels: its node is alone, or does without them (--mesh off)"
        raise CannotStart(f"{place.root} {text}")
    key = renew_key(place.mesh_key).public
    show_change(form, f"the public key of this host's tunnels is {key}", key=key)
    return ExitStatus.OK
