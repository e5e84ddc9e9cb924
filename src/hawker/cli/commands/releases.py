"""`hawker releases`: what an app was to run, newest first."""

import click

from hawker.api.contract.app import AppParams
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery, ReleaseList
from hawker.cli.connect import talk
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, local, output_option, show, table


@click.command("releases")
@one_app_option
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=25, show_default=True, help="How many.")
@output_option
@click.pass_context
def command(ctx: click.Context, app: str, limit: int, form: Form) -> None:
    """List an app's releases, newest first: what clients that deploy told the app to run."""
    query = ListReleasesQuery(limit=limit)
    params = AppParams(app_name=app)
    show(talk(ctx, lambda caller: caller.call(LIST_RELEASES, params=params, query=query)), form, releases_table)


def releases_table(found: ReleaseList) -> str:
    rows = [
        (f"v{each.version}", each.status, each.strategy, each.image, each.user, local(each.created_at))
        for each in found.releases
    ]
    return table(("VERSION", "STATUS", "STRATEGY", "IMAGE", "USER", "CREATED"), rows)
