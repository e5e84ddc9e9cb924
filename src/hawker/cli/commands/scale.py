"""`hawker scale`: how many machines a process group has."""

from typing import Any

import click
import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import CreateDeployRequest
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery
from hawker.cli.connect import talk
from hawker.cli.deploys import begin
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, output_option

_MOST = 2000


@click.group("scale", no_args_is_help=True)
def command() -> None:
    """Give an app more machines, or fewer.

    \b
    Examples:
      hawker scale count 3 -a shop
      hawker scale count 0 --group jobs -a shop
    """


@command.command("count")
@click.argument("count", type=click.IntRange(0, _MOST))
@one_app_option
@click.option("-g", "--group", metavar="NAME", default="app", show_default=True, help="The process group.")
@click.option("--detach", is_flag=True, help="Do not follow it.")
@output_option
@click.pass_context
def count_(ctx: click.Context, count: int, app: str, group: str, detach: bool, form: Form) -> int:
    """Have COUNT machines of a process group.

    They are of the newest complete release. New machines prove themselves as in a deploy, and go again when one does
    not. Machines at rest are destroyed before those that run; machines that stay are not touched.
    """
    params, query = AppParams(app_name=app), ListReleasesQuery(limit=1, status="complete")
    found = talk(ctx, lambda caller: caller.call(LIST_RELEASES, params=params, query=query)).releases
    if not found or not isinstance(found[0].definition, dict):
        raise Failure(f"app {app} has no complete release with a config: deploy it first", ExitStatus.NOT_FOUND)
    body = CreateDeployRequest(
        definition=msgspec.convert(found[0].definition, dict[str, Any]),
        image=found[0].pinned or found[0].image or None,
        strategy="rolling",
        counts={group: count},
        skip_release_command=True,
        lax=True,
        label=f"scale {group} to {count}",
    )
    return begin(ctx, app, body, form, detach=detach)
