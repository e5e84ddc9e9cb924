"""Which node a command talks to. The local node is found by what it leaves in its data directory. Apart from `connect`,
which imports a whole HTTP client."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hawker.cli.access import Access
from hawker.deferred import deferred
from hawker.errors import Unauthorized, Unavailable
from hawker.http.message import origin_of
from hawker.log import Secret
from hawker.place import Place, default_data_dir
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import click
else:
    click = deferred("click")

VARIABLES = frozenset({"HAWKER_URL", "HAWKER_TOKEN", "HAWKER_APP"})
"""The client's own variables: no settings of a node."""


class Target(ValueObject, frozen=True):
    url: str
    """Of the node's API, as it was told or found."""
    token: Secret | None


def target_of(ctx: "click.Context") -> Target:
    """The node that the command line names."""
    return find_node(ctx.find_object(Access) or Access(), os.environ)


def find_node(access: Access, environ: Mapping[str, str]) -> Target:
    """Flags, then variables, then the local node. The local node's token is sent to its own address only."""
    place = _place(environ)
    local = _read(place.address)
    url = access.url or environ.get("HAWKER_URL") or local
    if url is None:
        raise Unavailable(
            f"no node found: HAWKER_URL is not set and {place.root} has no node's address;"
            " start a node with `hawker up`"
        )
    token = given_token(access, environ)
    if token is None and url.rstrip("/") == (local or "").rstrip("/"):
        token = _local_token(place)
    return Target(_with_scheme(url), token)


def _with_scheme(url: str) -> str:
    """HOST:PORT is taken too, as `hawker join` takes it. Raises `click.UsageError` for what is no address."""
    whole = url if "://" in url else f"http://{url}"
    if origin_of(whole) is None:
        raise click.UsageError(f"{url!r} is not a node's address, such as http://127.0.0.1:4280")
    return whole


def token_at_hand(access: Access, environ: Mapping[str, str]) -> Secret | None:
    """The token that a command would send, or the local node's; for what is done without asking a node."""
    return given_token(access, environ) or _local_token(_place(environ))


def given_token(access: Access, environ: Mapping[str, str]) -> Secret | None:
    """By the option, else by the variable."""
    given = access.token or environ.get("HAWKER_TOKEN")
    return Secret(given) if given else None


def _place(environ: Mapping[str, str]) -> Place:
    return Place(Path(environ.get("HAWKER_DATA_DIR") or default_data_dir()))


def _local_token(place: Place) -> Secret | None:
    text = _read(place.token)
    return Secret(text) if text else None


def _read(file: Path) -> str | None:
    """None when it is not there. Raises `Unauthorized` when it is someone else's."""
    try:
        return file.read_text().strip()
    except PermissionError as error:
        raise Unauthorized(
            f"cannot read the local node's {file.name} in {file.parent}: another user owns it"
        ) from error
    except OSError:
        return None
