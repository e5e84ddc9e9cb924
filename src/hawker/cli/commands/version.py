"""`hawker version`: of this command, and of the node if one answers."""

import click
import msgspec

from hawker.api.contract.node import HEALTH, Health
from hawker.cli.connect import talk
from hawker.cli.output import Form, fields, output_option, show
from hawker.errors import HawkerError
from hawker.version import VERSION


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """`node` is None when there is none, or it does not answer."""

    client: str
    """Of hawker, as this command is."""
    node: str | None


@click.command("version")
@output_option
@click.pass_context
def command(ctx: click.Context, form: Form) -> None:
    """Print the versions of this command and of the node."""
    health = _health(ctx)
    versions = Versions(client=VERSION, node=health.version if health else None)
    show(versions, form, lambda shown: fields((("client", shown.client), ("node", shown.node or "no answer"))))


def _health(ctx: click.Context) -> Health | None:
    try:
        return talk(ctx, lambda caller: caller.call(HEALTH))
    except HawkerError:
        return None
