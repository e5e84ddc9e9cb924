"""One change of several things, one after the other: what fails is said, the rest is done all the same, and the first
failure gives the exit status.
"""

from collections.abc import Awaitable, Callable, Sequence

import click
import msgspec

from hawker.cli.exits import ExitStatus, Failure, report, text_of
from hawker.cli.output import Form, as_json
from hawker.errors import HawkerError


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thing. `named` is what the user typed; `id` is null if it was not found or not changed, and
    `error` says why."""

    named: str
    id: str | None = None
    error: str | None = None


async def change_each(named: Sequence[str], form: Form, change: Callable[[str], Awaitable[str]]) -> int:
    """`change` answers with the id of what it changed; ids are printed as they come, as JSON all at the end."""
    status: int = ExitStatus.OK
    changes = []
    for reference in named:
        try:
            changed = Changed(named=reference, id=await change(reference))
            if form is not Form.JSON:
                click.echo(changed.id)
        except (HawkerError, Failure) as error:
            failed = report(error)
            status = status or failed
            changed = Changed(named=reference, error=error.message if isinstance(error, Failure) else text_of(error))
        changes.append(changed)
    if form is Form.JSON:
        click.echo(as_json(changes))
    return status
