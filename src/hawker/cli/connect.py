"""Which node a command talks to, and the way there. The local node is found by what it leaves in its data directory."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import click

from hawker.api.caller import Caller
from hawker.api.client import Client
from hawker.api.retry import RateLimitRetry
from hawker.cli.access import Access
from hawker.cli.exits import Failure, sole_error
from hawker.clock import SystemClock
from hawker.errors import HawkerError, Unauthorized, Unavailable
from hawker.log import Secret
from hawker.settings import default_data_dir

# What the command line says about the node to talk to. Apart from `connect`, which imports a whole HTTP client.

T = TypeVar("T")

VARIABLES = frozenset({"HAWKER_URL", "HAWKER_TOKEN", "HAWKER_APP"})
"""The client's own variables: no settings of a node."""

ADDRESS_FILE, TOKEN_FILE = "address", "token"


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    token: Secret | None


def find_node(access: Access, environ: Mapping[str, str]) -> Target:
    """Flags, then variables, then the local node. The local node's token is sent to its own address only."""
    data_dir = _data_dir(environ)
    local = _read(data_dir / ADDRESS_FILE)
    url = access.url or environ.get("HAWKER_URL") or local
    if url is None:
        raise Unavailable(
            f"no node found: HAWKER_URL is not set and {data_dir} has no node's address; start a node with `hawker up`"
        )
    token = _given_token(access, environ)
    if token is None and url.rstrip("/") == (local or "").rstrip("/"):
        token = _local_token(data_dir)
    return Target(url, token)


def token_at_hand(access: Access, environ: Mapping[str, str]) -> Secret | None:
    """The token that a command would send, or the local node's; for what is done without asking a node."""
    return _given_token(access, environ) or _local_token(_data_dir(environ))


def _data_dir(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HAWKER_DATA_DIR") or default_data_dir())


def _given_token(access: Access, environ: Mapping[str, str]) -> Secret | None:
    given = environ.get("HAWKER_TOKEN")
    return access.token or (Secret(given) if given else None)


def _local_token(data_dir: Path) -> Secret | None:
    text = _read(data_dir / TOKEN_FILE)
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


def talk(ctx: click.Context, conversation: Callable[[Caller], Awaitable[T]]) -> T:
    """Run `conversation` with a client for the node that the command line names. Raises one error, never a group."""
    access = ctx.find_object(Access) or Access()
    target = find_node(access, os.environ)

    async def converse() -> T:
        async with Client(target.url, target.token, retry=RateLimitRetry(SystemClock())) as node:
            return await conversation(node)

    try:
        return anyio.run(converse)
    except BaseExceptionGroup as group:
        error = sole_error(group)
        if isinstance(error, HawkerError | Failure | KeyboardInterrupt):
            raise error from group
        raise
