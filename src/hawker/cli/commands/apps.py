"""`hawker apps`: the groups that machines belong to."""

import sys

import click

from hawker.api.contract.app import (
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    App,
    AppList,
    AppParams,
    CreateAppRequest,
    DeleteAppQuery,
)
from hawker.cli.connect import talk
from hawker.cli.options import completed
from hawker.cli.output import Form, fields, moment, output_option, show, show_change, table

new_name_argument = click.argument("name", metavar="NAME")
name_argument = click.argument("name", metavar="NAME", shell_complete=completed("apps"))


@click.group("apps", no_args_is_help=True)
def command() -> None:
    """List, create, show and destroy apps."""


@command.command("list")
@output_option
@click.pass_context
def list_apps(ctx: click.Context, form: Form) -> None:
    """List apps."""
    show(talk(ctx, lambda caller: caller.call(LIST_APPS)), form, apps_table)


def apps_table(answer: AppList) -> str:
    rows = ((app.name, app.status, app.machine_count, app.network, moment(app.created_at)) for app in answer.apps)
    return table(("NAME", "STATUS", "MACHINES", "NETWORK", "CREATED"), rows)


@command.command("create")
@new_name_argument
@click.option("--org", metavar="NAME", help="The organization that owns it.")
@click.option(
    "--network", metavar="NAME", help="The private network of its machines; apps of one network reach each other."
)
@output_option
@click.pass_context
def create_app(ctx: click.Context, name: str, org: str | None, network: str | None, form: Form) -> None:
    """Create an app, and print its name."""
    request = CreateAppRequest(name=name, org_slug=org, network=network)
    show(talk(ctx, lambda caller: caller.call(CREATE_APP, body=request)), form, lambda app: app.name)


@command.command("show")
@name_argument
@output_option
@click.pass_context
def show_app(ctx: click.Context, name: str, form: Form) -> None:
    """Show an app."""
    app = talk(ctx, lambda caller: caller.call(GET_APP, params=AppParams(app_name=name)))
    show(app, form, app_fields)


def app_fields(app: App) -> str:
    return fields(
        (
            ("name", app.name),
            ("id", app.id),
            ("status", app.status),
            ("machines", app.machine_count),
            ("network", app.network),
            ("organization", app.organization.slug),
            ("created", moment(app.created_at)),
        )
    )


@command.command("destroy")
@name_argument
@click.option("-f", "--force", is_flag=True, help="Also destroy its machines, running or not, without asking.")
@output_option
@click.pass_context
def destroy_app(ctx: click.Context, name: str, force: bool, form: Form) -> None:
    """Destroy an app. Its machines go with it, and its volumes can be undeleted for a while: on a terminal the command
    names them and asks, elsewhere it needs --force for an app that has any."""
    params = AppParams(app_name=name)
    if not force and sys.stdin.isatty():
        force = _may_go(talk(ctx, lambda caller: caller.call(GET_APP, params=params)))
    query = DeleteAppQuery(force=force)
    talk(ctx, lambda caller: caller.call(DELETE_APP, params=params, query=query))
    show_change(form, name, name=name)


def _may_go(app: App) -> bool:
    """Whether the user wants to lose what the app has; asked only if there is something. Raises `click.Abort`."""
    if not app.machine_count and not app.volume_count:
        return False
    goes = f"{app.machine_count} machines and {app.volume_count} volumes"
    return click.confirm(f"App '{app.name}' goes with {goes}. Destroy it?", abort=True, err=True)
