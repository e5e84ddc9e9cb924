"""`hawker secrets`: what an app's machines are given and nobody else should see."""

import sys

import click

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.secret import (
    LIST_SECRETS,
    UPDATE_SECRETS,
    AppSecrets,
    SecretsQuery,
    SecretsUpdated,
    UpdateSecretsRequest,
)
from hawker.cli.connect import talk
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, local, output_option, show, table
from hawker.errors import NotFound


@click.group("secrets", no_args_is_help=True)
def command() -> None:
    """Set, list and remove an app's secrets.

    A machine receives them as variables when it is created or updated; existing machines keep what they have.

    \b
    Examples:
      hawker secrets set -a shop DATABASE_URL=- < url
      hawker secrets import -a shop < .env
      hawker secrets list -a shop
    """


@command.command("list")
@one_app_option
@click.option("--show", "shown", is_flag=True, help="With their values; needs a token with control over the app.")
@output_option
@click.pass_context
def list_secrets(ctx: click.Context, app: str, shown: bool, form: Form) -> None:
    """List an app's secrets."""
    query = SecretsQuery(show_secrets=shown)
    answer = talk(ctx, lambda caller: caller.call(LIST_SECRETS, params=AppParams(app_name=app), query=query))
    show(answer, form, secrets_table)


def secrets_table(answer: AppSecrets) -> str:
    shown = any(secret.value is not None for secret in answer.secrets)
    rows = [
        (secret.name, secret.digest, local(secret.updated_at), *((secret.value,) if shown else ()))
        for secret in answer.secrets
    ]
    return table(("NAME", "DIGEST", "SET", *(("VALUE",) if shown else ())), rows)


@command.command("set")
@one_app_option
@click.argument("pairs", metavar="NAME=VALUE...", nargs=-1, required=True)
@output_option
@click.pass_context
def set_secrets(ctx: click.Context, app: str, pairs: tuple[str, ...], form: Form) -> None:
    """Set secrets of an app.

    `NAME=-` reads the value from stdin, so that no other user of this host can see it.
    """
    values = dict(map(_pair, pairs))
    if list(values.values()).count("-") > 1:
        raise click.UsageError("only one value can come from stdin")
    _update(ctx, app, {name: sys.stdin.read() if value == "-" else value for name, value in values.items()}, form)


@command.command("import")
@one_app_option
@output_option
@click.pass_context
def import_secrets(ctx: click.Context, app: str, form: Form) -> None:
    """Set secrets from lines NAME=VALUE on stdin. Empty lines and lines that begin with # are ignored."""
    lines = (line.strip() for line in sys.stdin)
    values = dict(_pair(line.removeprefix("export ")) for line in lines if line and not line.startswith("#"))
    _update(ctx, app, {name: _unquoted(value) for name, value in values.items()}, form)


@command.command("unset")
@one_app_option
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@output_option
@click.pass_context
def unset_secrets(ctx: click.Context, app: str, names: tuple[str, ...], form: Form) -> None:
    """Remove secrets: all of them, or none where one is not set. Existing machines keep them until they are updated."""
    answer = talk(ctx, lambda caller: _unset(caller, app, names))
    show(answer, form, _version)


async def _unset(caller: Caller, app: str, names: tuple[str, ...]) -> SecretsUpdated:
    """Raises `NotFound`."""
    params = AppParams(app_name=app)
    there = {secret.name for secret in (await caller.call(LIST_SECRETS, params=params)).secrets}
    missing = [name for name in names if name not in there]
    if missing:
        raise NotFound(
            f"app {app} has no secret {', '.join(missing)}: `hawker secrets list -a {app}` lists what it has"
        )
    return await caller.call(UPDATE_SECRETS, params=params, body=UpdateSecretsRequest(values=dict.fromkeys(names)))


def _update(ctx: click.Context, app: str, values: dict[str, str | None], form: Form) -> None:
    body = UpdateSecretsRequest(values=values)
    answer = talk(ctx, lambda caller: caller.call(UPDATE_SECRETS, params=AppParams(app_name=app), body=body))
    show(answer, form, _version)


def _version(answer: SecretsUpdated) -> str:
    return f"version {answer.version}; machines get it with their next update"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text.partition('=')[0]!r} is not NAME=VALUE")
    return name.strip(), value


def _unquoted(value: str) -> str:
    """As in a file for a shell: without the quotes around the whole."""
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
