"""`hawker machine metadata`: the pairs that a machine is labelled with."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import LIST_METADATA, UPDATE_METADATA, UpdateMetadataRequest
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.notation import Written, pair
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show, show_change, table


@click.group("metadata")
def command() -> None:
    """Show, set and remove a machine's metadata. It needs no restart and makes no new version."""


@command.command("show")
@machine_argument
@app_option
@output_option
@click.pass_context
def show_metadata(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """Show a machine's metadata."""
    pairs = talk(ctx, lambda caller: _metadata(caller, machine, app))
    show(pairs, form, lambda pairs: table(("KEY", "VALUE"), sorted(pairs.items())))


@command.command("set")
@machine_argument
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True, type=Written(pair, "pair"))
@app_option
@output_option
@click.pass_context
def set_metadata(
    ctx: click.Context, machine: str, pairs: tuple[tuple[str, str], ...], app: str | None, form: Form
) -> None:
    """Set keys; the other keys stay."""
    talk(ctx, lambda caller: _update(caller, machine, app, dict(pairs)))
    show_change(form, None, machine=machine, set=dict(pairs))


@command.command("remove")
@machine_argument
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@app_option
@output_option
@click.pass_context
def remove_metadata(ctx: click.Context, machine: str, keys: tuple[str, ...], app: str | None, form: Form) -> None:
    """Remove keys."""
    talk(ctx, lambda caller: _update(caller, machine, app, dict.fromkeys(keys)))
    show_change(form, None, machine=machine, removed=keys)


async def _metadata(caller: Caller, reference: str, app: str | None) -> dict[str, str]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_METADATA, params=found.params)


async def _update(caller: Caller, reference: str, app: str | None, changes: dict[str, str | None]) -> None:
    found = await find_machine(caller, reference, app)
    await caller.call(UPDATE_METADATA, params=found.params, body=UpdateMetadataRequest(metadata=changes))
