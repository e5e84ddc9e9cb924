"""`hawker node keys`: the cluster's keys, replaced in three steps that each reach every node before the next."""

from collections.abc import Awaitable, Callable
from typing import TextIO

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import ADD_KEY, LIST_KEYS, REMOVE_KEY, USE_KEY, AddKeyRequest, ClusterKeys, KeyParams
from hawker.cli.connect import talk
from hawker.cli.output import Form, note, output_option, show, table

_HELP = """The keys that nodes seal their messages with. A key is replaced while the fleet goes on:

\b
  hawker node keys add          every node understands the new key
  hawker node keys use 2        every node seals with it
  hawker node keys remove 1     nobody understands the old one any more

Each step waits until the one before has reached all nodes that live. A node that was away meanwhile is brought back
with `hawker join`.
"""


@click.group("keys", help=_HELP, no_args_is_help=True)
def command() -> None:
    pass


@command.command("list")
@output_option
@click.pass_context
def list_keys(ctx: click.Context, form: Form) -> None:
    """List the keys by number. The name tells a key from others and says nothing of it."""
    _shown(ctx, lambda caller: caller.call(LIST_KEYS), form)


@command.command("add")
@click.option("--key-file", type=click.File("r"), metavar="FILE",
              help="A file with the key, 32 bytes in base64, or - for stdin; a new key unless told.")  # fmt: skip
@output_option
@click.pass_context
def add_key(ctx: click.Context, key_file: TextIO | None, form: Form) -> None:
    """Have every node understand one more key. There are at most four."""
    key = key_file.read().strip() if key_file else None
    _shown(ctx, lambda caller: caller.call(ADD_KEY, body=AddKeyRequest(key=key)), form)


@command.command("use")
@click.argument("number", type=int)
@output_option
@click.pass_context
def use_key(ctx: click.Context, number: int, form: Form) -> None:
    """Have every node seal what it sends with this key."""
    _shown(ctx, lambda caller: caller.call(USE_KEY, params=KeyParams(number=str(number))), form)


@command.command("remove")
@click.argument("number", type=int)
@output_option
@click.pass_context
def remove_key(ctx: click.Context, number: int, form: Form) -> None:
    """Have no node understand this key any more."""
    _shown(ctx, lambda caller: caller.call(REMOVE_KEY, params=KeyParams(number=str(number))), form)


def _shown(ctx: click.Context, ask: Callable[[Caller], Awaitable[ClusterKeys]], form: Form) -> None:
    answer = talk(ctx, ask)
    show(answer, form, keys_table)
    if answer.missing_at and form is Form.TABLE:
        note(f"not yet at {', '.join(answer.missing_at)}")


def keys_table(answer: ClusterKeys) -> str:
    rows = ((key.number, key.name, "yes" if key.primary else "no") for key in answer.keys)
    return table(("KEY", "NAME", "IN USE"), rows)
