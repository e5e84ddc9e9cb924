"""Exit statuses, and what is said of an error: one line that begins with `error:`, and a line on what to do next."""

import sys
from enum import IntEnum

import click

from hawker.errors import (
    BadRequest,
    CannotStart,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    HawkerError,
    LeaseHeld,
    NoRoom,
    NotFound,
    RateLimited,
    Unauthorized,
    Unavailable,
    WrongState,
    plain,
)


class ExitStatus(IntEnum):
    """`machine exec` and `machine run --attach` exit with the command's own status instead, once it has run."""

    OK = 0
    FAILED = 1  # refused by the node, or it did not work
    USAGE = 2  # the command line is wrong, or the node cannot start
    NOT_FOUND = 3
    NO_ROOM = 4
    UNAVAILABLE = 5  # the node cannot be reached, or is busy: try again
    NOT_RUN = 125  # exec: the command was never run
    INTERRUPTED = 130


_STATUS: tuple[tuple[type[HawkerError], ExitStatus], ...] = (
    (CannotStart, ExitStatus.USAGE),
    (NotFound, ExitStatus.NOT_FOUND),
    (NoRoom, ExitStatus.NO_ROOM),
    (Unavailable, ExitStatus.UNAVAILABLE),
)

_NO_ROOM_HERE = "could not reserve resource for machine"
_CASES: tuple[tuple[str, str], ...] = (
    ("unable to destroy machine", "stop it first, or destroy it with --force"),
    ("destroy them first", "`hawker apps destroy --force` destroys them too"),
    (
        "there is none of that name",
        "`hawker volumes create NAME` makes one; a volume of a host that is away is not lost: see `hawker node list`",
    ),
    ("there are no backups in", "give the directory or s3://BUCKET/PREFIX that nodes have as --backup-url"),
    ("app not found", "see `hawker apps list`; `hawker apps create NAME` makes one"),
    ("snapshot vs_", "see `hawker volumes snapshots list VOLUME` for what there is"),
    ("still has a", "destroy what holds it first, or see `hawker volumes show`"),
    ("is attached to machine", "`hawker volumes detach` frees it once its machine is stopped"),
    ("unable to exec machine from current state", "`hawker machine start` starts it"),
    (_NO_ROOM_HERE, "see `hawker node show` for what is free there, or ask for less"),
    ("unique machine name violation", "give another --name, or destroy the machine that has it"),
    ("in use and cannot be held still", "stop its machine first; `hawker node doctor` says what else holds it"),
    ("does not offer the driver", "`hawker node show` says which drivers a host has, and why not the others"),
    (
        "does not have the label",
        "--label chooses hosts by their labels (`hawker up --label`); a machine's own are set with --metadata",
    ),
    ("is the primary; use another one first", "`hawker node keys use NUMBER` uses another one"),
    ("no such node", "see `hawker node list` for what there is"),
    ("the edge of this host is not there", "`hawker machine run --publish` orders a machine that publishes a port"),
    ("was never deployed here", "`hawker deploy` begins a first deploy"),
    ("has no deploy ", "see `hawker deploy list` for what there is"),
    ("HTTP status ", "what answers at this address is no node, or a proxy before one: see --url and HAWKER_URL"),
    ("the nearest is", "see `hawker node list` for the regions that there are"),
)
"""What to do next where the error's text says more than its kind."""
_LISTS: tuple[tuple[str, str], ...] = (
    ("run ", "hawker runs list"),
    ("network policy ", "hawker policies list"),
    ("certificate ", "hawker certs list"),
    ("ip address ", "hawker ips list"),
    ("secret ", "hawker secrets list"),
    ("peer ", "hawker wireguard list"),
    ("metadata key ", "hawker machine metadata show"),
)
"""Where to look for what was not found, by how the error's text begins."""
_TELLS = ("`hawker ", "--force", "; there are ")
"""Texts that say themselves what to type."""

_HINTS: tuple[tuple[type[HawkerError], str], ...] = (
    (Unauthorized, "give the node's token with --token-file or HAWKER_TOKEN; a local node's is in DATA_DIR/token"),
    (Forbidden, "this token does not allow that: use another with --token-file or HAWKER_TOKEN"),
    (LeaseHeld, "another client holds this machine's lease: wait until the lease expires or is released"),
    (Conflict, "another client changed it at the same moment: check its state and try again"),
    (NotFound, "see `hawker machine list`, `hawker apps list` and `hawker volumes list` for what there is"),
    (DeadlineExceeded, "the operation may still complete: see `hawker machine status` and `hawker runs list`"),
    (RateLimited, "the node limits how often a call may come: wait a moment and try again"),
)


class Failure(click.ClickException):
    """What was asked for did not happen, though every call was answered."""

    def __init__(self, text: str, status: int = ExitStatus.FAILED) -> None:
        super().__init__(text)
        self.status = status


_NO_SUCH_IMAGE = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN")


def status_of(error: HawkerError) -> ExitStatus:
    if isinstance(error, BadRequest) and any(each in str(error) for each in _NO_SUCH_IMAGE):
        return ExitStatus.NOT_FOUND
    if _NO_ROOM_HERE in str(error):
        return ExitStatus.NO_ROOM
    return next((status for kind, status in _STATUS if isinstance(error, kind)), ExitStatus.FAILED)


def hint_of(error: HawkerError) -> str | None:
    text = str(error)
    for part, hint in _CASES:
        if part in text:
            return hint
    if any(each in text for each in _TELLS):
        return None
    match error:
        case NotFound() if listed := [command for begins, command in _LISTS if text.startswith(begins)]:
            return f"see `{listed[0]}` for what there is"
        case NoRoom() if "disk_mb" in error.shortfall:
            return "`hawker node show` says what is free; `hawker images prune` makes room, and so does a smaller order"
        case NoRoom() if error.shortfall:
            return "see `hawker node list` for what is free, or order a smaller machine"
        case NoRoom():
            return "`hawker place --dry-run` shows what each node says to this order"
        case WrongState() if "machine" in text:
            return "see its state with `hawker machine status`"
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)


def report(error: HawkerError | Failure) -> int:
    """Say it on stderr; the exit status that goes with it."""
    if isinstance(error, Failure):
        say_error(error.message)
        return error.status
    say_error(text_of(error), hint_of(error))
    return status_of(error)


def say_error(text: str, hint: str | None = None) -> None:
    click.echo(f"{click.style('error:', fg='red')} {text}", file=sys.stderr)
    if hint is not None:
        click.echo(f"hint: {hint}", file=sys.stderr)


def text_of(error: HawkerError) -> str:
    """On one line, without the API's word for the kind of error, which its exit status and hint say better."""
    return plain(" ".join(str(error).split())) or ""


def sole_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that ended a task group; the group itself when there are several of different kinds."""
    leaves = list(_leaves(group))
    first = leaves[0]
    return first if all(type(leaf) is type(first) for leaf in leaves) else group


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
