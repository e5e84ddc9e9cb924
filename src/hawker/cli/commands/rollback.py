"""`hawker rollback`: an older release once more, with its image and its config."""

from typing import Any

import click
import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import CreateDeployRequest
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery, Release
from hawker.cli.connect import talk
from hawker.cli.deploys import begin
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, output_option

_MOST = 100
_STRATEGIES = ("rolling", "canary", "bluegreen", "immediate")


@click.command("rollback")
@click.argument("version", metavar="[VERSION]", required=False)
@one_app_option
@click.option("--strategy", type=click.Choice(_STRATEGIES), help="How machines are replaced; wins over the release's.")
@click.option("--detach", is_flag=True, help="Do not follow it.")
@output_option
@click.pass_context
def command(ctx: click.Context, version: str | None, app: str, strategy: Any, detach: bool, form: Form) -> int:
    """Deploy an older complete release once more: the one before the newest complete release, or VERSION.

    The whole release comes back: its image and its config. Its release command is not run. After a release that
    failed, all machines come back at once, unless --strategy says otherwise.

    \b
    Examples:
      hawker rollback -a shop
      hawker rollback 12 -a shop
    """
    query, params = ListReleasesQuery(limit=_MOST), AppParams(app_name=app)
    releases = talk(ctx, lambda caller: caller.call(LIST_RELEASES, params=params, query=query)).releases
    wanted = chosen(app, releases, version)
    body = CreateDeployRequest(
        definition=msgspec.convert(wanted.definition, dict[str, Any]),
        image=wanted.pinned or wanted.image or None,
        strategy=strategy or ("immediate" if _is_broken(releases) else _strategy_of(wanted)),
        skip_release_command=True,
        lax=True,
        label=f"rollback to release {wanted.version}",
    )
    return begin(ctx, app, body, form, detach=detach)


def _strategy_of(release: Release) -> Any:
    """None for a word that another client wrote."""
    return release.strategy if release.strategy in _STRATEGIES else None


def _is_broken(releases: tuple[Release, ...]) -> bool:
    """Whether the newest one failed, and machines may be of it."""
    return bool(releases) and releases[0].status in ("failed", "interrupted")


def chosen(app: str, releases: tuple[Release, ...], version: str | None) -> Release:
    """`releases` are the newest first: after one that failed, machines come back to the newest complete one, else to
    the one before it. Raises `Failure` where there is none."""
    complete = [each for each in releases if each.status == "complete" and isinstance(each.definition, dict)]
    if version is not None:
        found = next((each for each in complete if str(each.version) == version.removeprefix("v")), None)
        if found is None:
            raise Failure(f"app {app} has no complete release {version} with a config", ExitStatus.NOT_FOUND)
        return found
    older = complete if _is_broken(releases) else complete[1:]
    if not older:
        raise Failure(f"app {app} has no earlier complete release with a config", ExitStatus.NOT_FOUND)
    return older[0]
