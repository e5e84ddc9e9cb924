"""The options and arguments that the commands about volumes share."""

import re

import click

from hawker.cli.notation import Written
from hawker.cli.options import completed, gathered
from hawker.value_object import ValueObject

_SIZE = re.compile(r"(\+?)(\d{1,6})\s*(?:g(?:i?b)?)?", re.IGNORECASE)

volume_argument = click.argument("volume", metavar="VOLUME", shell_complete=completed("volumes"))
"""An id, the unique beginning of one, or a name."""

volumes_argument = click.argument(
    "volumes", metavar="VOLUME...", nargs=-1, required=True, shell_complete=completed("volumes")
)


class SizeAsked(ValueObject, frozen=True):
    """In GiB: the new size, or the increase."""

    gib: int
    more: bool = False


def size_gib(text: str) -> SizeAsked:
    """ "10", "10gb", "+5"."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[2]) == 0:
        raise ValueError(f"{text!r} is not a size in GiB such as 10, or an increase such as +5")
    return SizeAsked(int(match[2]), bool(match[1]))


def whole_gib(text: str) -> int:
    asked = size_gib(text)
    if asked.more:
        raise ValueError(f"{text!r}: a new volume needs a size, not an increase")
    return asked.gib


class Keeping(ValueObject, frozen=True, kw_only=True):
    """How a volume's snapshots are kept; None: as it is, or for a new one as the node has it."""

    snapshot_retention: int | None
    scheduled_snapshots: bool | None


keeping_options = gathered(
    Keeping,
    "keeping",
    (
        click.option("--snapshot-retention", metavar="DAYS", type=int, help="How many days snapshots are kept."),
        click.option(
            "--scheduled-snapshots/--no-scheduled-snapshots", default=None, help="Take a snapshot each day, or not."
        ),
    ),
)

size_option = click.option(
    "-s",
    "--size",
    metavar="GIB",
    type=Written(whole_gib, "size"),
    help="Size in GiB; default 3, or its origin's.",
)
