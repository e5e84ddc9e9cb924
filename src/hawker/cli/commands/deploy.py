"""`hawker deploy`: an app's machines come to what its file says; how far that is, and a word to it."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import (
    ASSIGN_IP,
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_IPS,
    AppParams,
    AssignIpRequest,
    CreateAppRequest,
    DeleteAppQuery,
)
from hawker.api.contract.cluster import LIST_NODES
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    GET_DEPLOY,
    LIST_DEPLOYS,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    TAKE_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployInfo,
    DeployParams,
)
from hawker.api.route import Unary
from hawker.cli.connect import talk
from hawker.cli.deploys import begin, deploys_table, described, follow
from hawker.cli.exits import ExitStatus, Failure, text_of
from hawker.cli.fly_file import FlyFile, config_option, lax_option, read_fly_file
from hawker.cli.notation import Written
from hawker.cli.options import Command, check_before_subcommand, completed, gathered, one_app_option
from hawker.cli.output import Form, note, output_option, show
from hawker.errors import HawkerError, NotFound
from hawker.value_object import ValueObject

_HELP = """Bring an app's machines to what its fly.toml says, one after the other, each proven before the next.

The app's home does it and goes on whatever becomes of this command: Ctrl-C only stops watching. A machine that does
not start, or whose checks do not pass, takes the whole deploy back.

\b
Examples:
  hawker deploy --image registry.local:5000/shop:2
  hawker deploy -c fly.production.toml --strategy bluegreen
  hawker deploy --dry-run
  hawker deploy watch -a shop
"""


class _Scope(ValueObject, frozen=True):
    """What of the app is touched; empty is all."""

    only_machines: tuple[str, ...]
    exclude_machines: tuple[str, ...]
    only_regions: tuple[str, ...]
    exclude_regions: tuple[str, ...]
    process_groups: tuple[str, ...]
    update_only: bool


def _several(name: str, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(name, metavar=metavar, type=Written(_words, "list"), default="", help=text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


_scope_options = gathered(
    _Scope,
    "scope",
    [
        _several("--only-machines", "ID,...", "Change these machines alone."),
        _several("--exclude-machines", "ID,...", "Leave these machines as they are."),
        _several("--only-regions", "REGION,...", "Change machines of these regions alone."),
        _several("--exclude-regions", "REGION,...", "Leave machines of these regions as they are."),
        _several("--process-groups", "GROUP,...", "Change machines of these process groups alone."),
        click.option("--update-only", is_flag=True, help="Make no machine of a new group, destroy none of an old one."),
    ],
)
STRATEGIES = ("rolling", "canary", "bluegreen", "immediate")


@click.group("deploy", help=_HELP, invoke_without_command=True)
@config_option
@lax_option
@click.option(
    "-a",
    "--app",
    metavar="NAME",
    shell_complete=completed("apps"),
    envvar="HAWKER_APP",
    help="The app; wins over the file's.",
)
@click.option(
    "-i",
    "--image",
    metavar="IMAGE",
    shell_complete=completed("images"),
    help="What machines run; wins over the file's.",
)
@click.option("--strategy", type=click.Choice(STRATEGIES), help="How machines are replaced; wins over the file's.")
@click.option(
    "--wait-timeout",
    metavar="TIME",
    help="How long each machine may take to be ready, such as 10m; wins over the file's.",
)
@click.option(
    "--max-unavailable", type=float, metavar="N", help="So many at a time, or a share below 1; wins over the file's."
)
@_scope_options
@click.option("--ha/--no-ha", default=True, help="Two machines for a new group with services, or one.")
@click.option("--public-ips/--no-public-ips", default=True, help="A shared address for a new app that speaks HTTP.")
@click.option("--skip-release-command", is_flag=True, help="Do not run it.")
@click.option("--supersede", is_flag=True, help="End a deploy of the app that is under way, where it is.")
@click.option("--label", metavar="TEXT", default="", help="A word for the list of deploys, such as a commit.")
@click.option("--detach", is_flag=True, help="Do not follow it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    file: str | None,
    lax: bool,
    app: str | None,
    image: str | None,
    strategy: Any,
    wait_timeout: str | None,
    max_unavailable: float | None,
    scope: _Scope,
    ha: bool,
    public_ips: bool,
    skip_release_command: bool,
    supersede: bool,
    label: str,
    detach: bool,
    dry_run: bool,
    form: Form,
) -> int | None:
    if ctx.invoked_subcommand is not None:
        check_before_subcommand(ctx)
        return None
    found = read_fly_file(file, lax=lax)
    name = app or found.config.app
    if not name:
        raise Failure(f"{found.path} names no app: give one with -a NAME", ExitStatus.USAGE)
    if not image and not (found.config.build and found.config.build.image):
        raise Failure(f"{found.path} names no image in [build]: give one with --image IMAGE", ExitStatus.USAGE)
    definition = definition_of(found)
    paced = {"wait_timeout": wait_timeout, "max_unavailable": max_unavailable}
    if given := {key: value for key, value in paced.items() if value is not None}:
        definition["deploy"] = {**(definition.get("deploy") or {}), **given}
    body = CreateDeployRequest(
        definition=definition,
        image=image,
        strategy=strategy,
        ha=ha,
        only_machines=scope.only_machines or None,
        exclude_machines=scope.exclude_machines or None,
        only_regions=scope.only_regions or None,
        exclude_regions=scope.exclude_regions or None,
        process_groups=scope.process_groups or None,
        update_only=scope.update_only or None,
        skip_release_command=skip_release_command,
        dry_run=dry_run,
        lax=lax,
        supersede=supersede or None,
        label=label,
    )
    public_ips = public_ips and not dry_run and found.config.http_service is not None
    made = talk(ctx, lambda caller: _there(caller, name, public_ips=public_ips, told=not dry_run))
    try:
        return begin(ctx, name, body, form, detach=detach)
    finally:
        if made and dry_run:  # a plan needs an app, and a dry run leaves none
            talk(ctx, lambda caller: caller.call(DELETE_APP, params=AppParams(app_name=name), query=DeleteAppQuery()))


def definition_of(found: FlyFile) -> dict[str, Any]:
    """The file as JSON, with the content of local files in it. Raises `Failure`."""
    document = msgspec.convert(found.document, dict[str, Any])
    content = found.local_files()
    if content:
        files = document["files"]
        several = files if isinstance(files, list) else [files]  # one table where a list is meant
        document["files"] = [_with_content(file, content) for file in several if file is not None]
    return document


def _with_content(file: dict[str, Any], content: dict[str, bytes]) -> dict[str, Any]:
    path = file.get("local_path")
    if not path:
        return file
    rest = {key: value for key, value in file.items() if key != "local_path"}
    return rest | {"raw_value": b64encode(content[path]).decode()}


async def _there(caller: Caller, app: str, *, public_ips: bool, told: bool) -> bool:
    """A first deploy makes the app where it is missing, which is said where it is `told`, and gives it an address where
    it can be reached. Whether it made the app."""
    params, made = AppParams(app_name=app), False
    first = True
    try:
        await caller.call(GET_APP, params=params)
        first = public_ips and await _is_fresh(caller, params)
    except NotFound:
        await caller.call(CREATE_APP, body=CreateAppRequest(name=app))
        made = True
        if told:
            note(f"created app {app}")
    if public_ips and first:
        try:
            given = await caller.call(ASSIGN_IP, params=params, body=AssignIpRequest(type="shared_v4"))
        except HawkerError as error:
            note(f"no address for it: {text_of(error)}")
        else:
            others = len((await caller.call(LIST_NODES)).nodes) > 1
            where = ", at the hosts with an --edge-address" if others else ""
            note(f"it is reached at {given.ip} by its name{where}: see `hawker ips list -a {app}`")
    return made


async def _is_fresh(caller: Caller, params: AppParams) -> bool:
    """Whether somebody made the app, and nothing was deployed yet: addresses that were released are not given again."""
    if (await caller.call(LIST_DEPLOYS, params=params)).deploys:
        return False
    return not (await caller.call(LIST_IPS, params=params)).ips


_version = click.argument("version", metavar="[VERSION]", default="latest")
"""A release's number, with or without a v; the newest deploy unless told."""


def _params(app: str, version: str) -> DeployParams:
    return DeployParams(app_name=app, version=version.removeprefix("v"))


def _get(ctx: click.Context, params: DeployParams) -> DeployInfo:
    return talk(ctx, lambda caller: caller.call(GET_DEPLOY, params=params))


@command.command("status")
@_version
@one_app_option
@output_option
@click.pass_context
def status(ctx: click.Context, version: str, app: str, form: Form) -> None:
    """Show a deploy and how far each machine is; the newest unless told."""
    show(_get(ctx, _params(app, version)), form, described)


@command.command("list")
@one_app_option
@output_option
@click.pass_context
def list_(ctx: click.Context, app: str, form: Form) -> None:
    """List an app's deploys, newest first."""
    found = talk(ctx, lambda caller: caller.call(LIST_DEPLOYS, params=AppParams(app_name=app)))
    show(found, form, lambda found: deploys_table(found.deploys))


@command.command("watch")
@_version
@one_app_option
@output_option
@click.pass_context
def watch(ctx: click.Context, version: str, app: str, form: Form) -> int:
    """Follow a deploy until it has ended. Ctrl-C stops watching, not the deploy."""
    return follow(ctx, _get(ctx, _params(app, version)), form)


def _word(route: Unary[DeployParams, Any, None, DeployInfo]) -> Callable[[click.Context, str, str, Form], None]:
    def say(ctx: click.Context, app: str, version: str, form: Form) -> None:
        params = _params(app, version)
        show(talk(ctx, lambda caller: caller.call(route, params=params)), form, described)

    return say


def _worded(name: str, route: Unary[DeployParams, Any, None, DeployInfo], text: str) -> Command:
    made: Command = command.command(name, help=text)(
        _version(one_app_option(output_option(click.pass_context(_word(route)))))
    )
    return made


pause = _worded("pause", PAUSE_DEPLOY, "Begin with no further machine until `resume`. Those under way come to an end.")
resume = _worded("resume", RESUME_DEPLOY, "Go on with a paused deploy.")
take = _worded(
    "take",
    TAKE_DEPLOY,
    "Go on with a deploy although two of its three voters are lost. Do it only when they do not come back: two voters"
    " that are cut off and live may go on with the deploy, too.",
)


@command.command("abort")
@_version
@one_app_option
@click.option("--keep", is_flag=True, help="Leave every machine as it is.")
@output_option
@click.pass_context
def abort(ctx: click.Context, version: str, app: str, keep: bool, form: Form) -> None:
    """End a deploy and take back what it changed."""
    params, body = _params(app, version), AbortDeployRequest(keep=keep)
    show(talk(ctx, lambda caller: caller.call(ABORT_DEPLOY, params=params, body=body)), form, described)
