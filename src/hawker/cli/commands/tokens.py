"""`hawker tokens`: narrower tokens from the one at hand, made without asking anyone, and what ends them."""

import os
from typing import NoReturn

import click

from hawker.api.contract.body import instant
from hawker.api.contract.token import LIST_REVOKED, REVOKE_TOKEN, RevokedToken, RevokedTokens, RevokeTokenRequest
from hawker.auth.caveat import Actions, Apps, Caveat, Expires, Holder, Machines, Orgs, Sources
from hawker.auth.macaroon import NONCE_BYTES, Macaroon, chain, from_text, is_token_id, key_of, mint, narrow, to_text
from hawker.cli.access import Access
from hawker.cli.connect import talk
from hawker.cli.options import completed
from hawker.cli.output import Form, as_json, fields, local, note, output_option, show, show_change, table
from hawker.cli.target import token_at_hand
from hawker.cli.token_input import read_token, refuse_root
from hawker.clock import SystemClock
from hawker.config.duration import parse_duration
from hawker.errors import Unauthorized
from hawker.ids import is_machine_id
from hawker.permission import actions_of

_CLOCK = SystemClock()
_LIMITS = (
    click.option("--org", "orgs", metavar="NAME", multiple=True, help="Only this organization; may be repeated."),
    click.option(
        "-a",
        "--app",
        "apps",
        metavar="NAME",
        shell_complete=completed("apps"),
        multiple=True,
        help="Only this app; may be repeated.",
    ),
    click.option(
        "-m",
        "--machine",
        "machines",
        metavar="ID",
        shell_complete=completed("machine_ids"),
        multiple=True,
        help="Only this machine, by its whole id; likewise.",
    ),
    click.option(
        "--actions", metavar="LETTERS", help="Only these actions: r read, w write, c create, d delete, C control."
    ),
    click.option("--expires", metavar="DURATION", help="Valid for this time, such as 24h."),
    click.option("--source", "sources", metavar="CIDR", multiple=True, help="Only callers from this network."),
    click.option("--for", "holder", metavar="NAME", help="The holder: the name in leases and logs."),
)


_file_option = click.option("--token-file", metavar="FILE", help="A file with the token, or - for standard input.")


@click.group("tokens", no_args_is_help=True)
def command() -> None:
    """Make, inspect and revoke limited tokens.

    The holder of a token can narrow it, and nobody can widen it. `create` starts from your token: the node's root
    token, or the one that you were given. No node is asked.

    \b
    Examples:
      hawker tokens create --app shop --actions rw --expires 24h --for ci
      hawker tokens create --app shop | hawker tokens attenuate --actions r -
      hawker tokens revoke --token-file ci.token
    """


def _limits(function: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_LIMITS):
        function = option(function)
    return function


@command.command("create")
@_limits
@output_option
@click.pass_context
def create_token(ctx: click.Context, /, form: Form, **limits: object) -> None:
    """Make a token that allows less than yours, and print it."""
    _print(_at_hand(ctx), form, limits)


@command.command("attenuate")
@click.argument("token", metavar="[-]", required=False)
@_file_option
@_limits
@output_option
def attenuate_token(token: str | None, token_file: str | None, form: Form, **limits: object) -> None:
    """Narrow a token, and print the new one. `-` reads it from stdin. The old token stays valid."""
    _print(_read(_given(token, token_file)), form, limits)


@command.command("inspect")
@click.argument("token", metavar="[-]", required=False)
@_file_option
@output_option
@click.pass_context
def inspect_token(ctx: click.Context, token: str | None, token_file: str | None, form: Form) -> None:
    """Show what a token (`-` reads it from stdin) allows, and its id. Where the root token is, check it too."""
    read = _read(_given(token, token_file))
    issued, verdict = instant(read.header.issued_at), _verdict(ctx, read)
    if form is Form.JSON:
        limits = [{_word(caveat): _text(caveat)} for caveat in read.caveats]
        return click.echo(as_json({"id": read.id, "issued_at": issued, "signature": verdict, "limits": limits}))
    pairs = [("id", read.id), ("issued", local(issued)), ("signature", verdict)]
    click.echo(fields([*pairs, *((_word(caveat), _text(caveat)) for caveat in read.caveats)]))


@command.command("revoke")
@click.argument("token", metavar="[-|ID]", required=False)
@_file_option
@click.option("--note", metavar="TEXT", default="", help="The reason, shown in the list.")
@output_option
@click.pass_context
def revoke_token(ctx: click.Context, token: str | None, token_file: str | None, note: str, form: Form) -> None:
    """Revoke a token and all that were narrowed from it. `-` reads it from stdin; its id will do if you control the
    node."""
    given = _given(token, token_file)
    if is_token_id(given):
        request = RevokeTokenRequest(token_id=given, note=note)
    else:
        request = RevokeTokenRequest(token=to_text(_read(given)), note=note)
    show(talk(ctx, lambda caller: caller.call(REVOKE_TOKEN, body=request)), form, _revoked)


@command.command("list")
@output_option
@click.pass_context
def list_tokens(ctx: click.Context, form: Form) -> None:
    """List what is known of tokens: the revoked ones. Tokens are made without asking a node, so nobody has a list of
    those that are valid; `hawker audit` shows who used them."""
    show(talk(ctx, lambda caller: caller.call(LIST_REVOKED)), form, _revoked_table)
    if form is Form.TABLE:
        note("only revoked tokens are known: tokens are made without asking a node")


@command.command("revoked")
@output_option
@click.pass_context
def list_revoked(ctx: click.Context, form: Form) -> None:
    """List the revoked tokens."""
    show(talk(ctx, lambda caller: caller.call(LIST_REVOKED)), form, _revoked_table)


def _print(token: Macaroon, form: Form, limits: dict[str, object]) -> None:
    caveats = _caveats(**limits)  # type: ignore[arg-type]
    if not caveats:
        _refuse("no limit given: use --org, --app, --machine, --actions, --expires, --source or --for")
    try:
        made = narrow(token, *caveats)
    except ValueError as error:
        _refuse(str(error))
    show_change(form, to_text(made), id=made.id, token=to_text(made))


def _caveats(
    *,
    orgs: tuple[str, ...],
    apps: tuple[str, ...],
    machines: tuple[str, ...],
    actions: str | None,
    expires: str | None,
    sources: tuple[str, ...],
    holder: str | None,
) -> list[Caveat]:
    found: list[Caveat] = []
    try:
        found += [Orgs(orgs)] if orgs else []
        found += [Apps(apps)] if apps else []
        found += [Machines(tuple(map(_machine_id, machines)))] if machines else []
        found += [Actions(actions)] if actions and actions_of(actions) else []
        found += [Expires(int(_CLOCK.now() + parse_duration(expires)))] if expires else []
        found += [Sources(sources)] if sources else []
        found += [Holder(holder)] if holder else []
    except ValueError as error:
        _refuse(str(error))
    return found


def _machine_id(text: str) -> str:
    """Nodes compare whole ids, and no node is asked here: with a name the token would allow nothing. Raises
    `ValueError`."""
    if not is_machine_id(text):
        raise ValueError(f"--machine {text!r} is no id of 14 hexadecimal digits: `hawker ps` shows the ids of machines")
    return text


def _at_hand(ctx: click.Context) -> Macaroon:
    text = _known(ctx)
    if text is None:
        raise Unauthorized("no token found: run this on the node's host, or set HAWKER_TOKEN")
    try:
        return from_text(text)
    except ValueError:  # the root token, which is a key
        return mint(key_of(text), _CLOCK.token_bytes(NONCE_BYTES), int(_CLOCK.now()))


def _known(ctx: click.Context) -> str | None:
    token = token_at_hand(ctx.find_object(Access) or Access(), os.environ)
    return None if token is None else token.reveal()


def _given(token: str | None, token_file: str | None) -> str:
    """The text of a token, or of an id. A token in the command line still works, with a warning; a root token never."""
    if (token is None) == (token_file is None):
        _refuse("give the token with --token-file FILE, or - for standard input")
    refuse_root(token)
    if token is not None and token != "-":
        if not is_token_id(token):
            note("every user of this host could read that token in the command line: use --token-file FILE, or -")
        return token
    read = read_token(token_file or "-")
    assert read is not None
    return read


def _read(text: str) -> Macaroon:
    try:
        return from_text(text)
    except ValueError as error:
        _refuse(str(error))


def _verdict(ctx: click.Context, token: Macaroon) -> str:
    root = _known(ctx)
    if root is None:
        return "not checked: the root token is not at hand"
    return "good here" if chain(key_of(root), token) else "not by the token at hand"


def _refuse(text: str) -> NoReturn:
    raise click.UsageError(text)


def _word(caveat: Caveat) -> str:
    return str(caveat).partition(" ")[0]


def _text(caveat: Caveat) -> str:
    return local(instant(caveat.at)) if isinstance(caveat, Expires) else str(caveat).partition(" ")[2]


def _revoked(token: RevokedToken) -> str:
    return token.token_id


def _revoked_table(answer: RevokedTokens) -> str:
    rows = ((each.token_id, local(each.revoked_at), each.revoked_by, each.note) for each in answer.tokens)
    return table(("TOKEN", "REVOKED", "BY", "NOTE"), rows)
