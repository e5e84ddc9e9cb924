"""The way to the node that a command talks to: a client of the whole API."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import click

from hawker.api.caller import Caller
from hawker.api.client import Client, RateLimitRetry
from hawker.cli.exits import Failure, sole_error
from hawker.cli.output import note
from hawker.cli.target import target_of
from hawker.clock import SystemClock
from hawker.errors import HawkerError

T = TypeVar("T")


def _say_why(reason: str) -> None:
    note(f"waiting: the node lets this through a little later ({reason})")


def talk(ctx: click.Context, conversation: Callable[[Caller], Awaitable[T]]) -> T:
    """Run `conversation` with a client for the node that the command line names. Raises one error, never a group."""
    target = target_of(ctx)

    async def converse() -> T:
        async with Client(target.url, target.token, retry=RateLimitRetry(SystemClock(), _say_why)) as node:
            return await conversation(node)

    try:
        return anyio.run(converse)
    except BaseExceptionGroup as group:
        error = sole_error(group)
        if isinstance(error, HawkerError | Failure | KeyboardInterrupt | OSError):
            raise error from group
        raise
