"""`hawker registry`: who an organization is at a registry of images."""

import sys
from pathlib import Path

import click

from hawker.api.contract.image import (
    DELETE_LOGIN,
    LIST_LOGINS,
    PUT_LOGIN,
    LoginRequest,
    RegistryLoginList,
    RegistryParams,
)
from hawker.api.contract.org import OrgParams
from hawker.app import DEFAULT_ORG
from hawker.cli.connect import talk
from hawker.cli.output import Form, local, output_option, show, show_change, table
from hawker.cli.token_input import password_options, read_password

_org = click.option("--org", default=DEFAULT_ORG, show_default=True, help="Whose login it is.")


@click.group("registry", no_args_is_help=True)
def command() -> None:
    """Log an organization in at registries, so that machines of its apps run private images.

    The login is sealed on the node's disk. Another node of the fleet asks for it when it first pulls for that
    organization.

    \b
    Examples:
      hawker registry login registry.example --username ada
      hawker registry login reg.example --username ada --password-stdin < token
      hawker registry list
      hawker registry logout registry.example
    """


@command.command("login")
@click.argument("host", metavar="HOST[:PORT]")
@click.option("--username", "-u", metavar="NAME", help="Asked for when it is left out.")
@password_options
@_org
@click.option("--realm", metavar="HOST", help="A token server elsewhere that may have the password.")
@click.option("--no-check", is_flag=True, help="Do not ask the registry whether it takes the login.")
@output_option
@click.pass_context
def login(
    ctx: click.Context,
    host: str,
    username: str | None,
    password_stdin: bool,
    password_file: Path | None,
    org: str,
    realm: str | None,
    no_check: bool,
    form: Form,
) -> None:
    """Log in at the registry HOST. The user name and the password or access token are kept once the registry has taken
    them."""
    if username is None:
        if password_stdin:
            raise click.UsageError("give --username NAME: standard input has the password")
        if not sys.stdin.isatty():
            raise click.UsageError("nobody to ask for the user name: give --username NAME")
        username = str(click.prompt("User name", err=True))
    password = read_password(password_stdin, password_file)
    body = LoginRequest(username=username, password=password, realm=realm, unchecked=no_check)
    params = RegistryParams(org_slug=org, registry=host)
    made = talk(ctx, lambda caller: caller.call(PUT_LOGIN, params=params, body=body))
    show(made, form, lambda answer: f"{answer.username} is logged in at {answer.registry} for org {org}")


@command.command("logout")
@click.argument("host", metavar="HOST[:PORT]")
@_org
@output_option
@click.pass_context
def logout(ctx: click.Context, host: str, org: str, form: Form) -> None:
    """Forget the login at HOST, on every node. Images that are here stay."""
    params = RegistryParams(org_slug=org, registry=host)
    talk(ctx, lambda caller: caller.call(DELETE_LOGIN, params=params))
    show_change(form, None, registry=host, org=org)


@command.command("list")
@_org
@output_option
@click.pass_context
def list_logins(ctx: click.Context, org: str, form: Form) -> None:
    """List the organization's logins, and the nodes that have each."""
    show(talk(ctx, lambda caller: caller.call(LIST_LOGINS, params=OrgParams(org_slug=org))), form, logins_table)


def logins_table(answer: RegistryLoginList) -> str:
    rows = ((each.registry, each.username, local(each.at), each.by, " ".join(each.nodes)) for each in answer.logins)
    return table(("REGISTRY", "USER", "SINCE", "BY", "NODES"), rows)
