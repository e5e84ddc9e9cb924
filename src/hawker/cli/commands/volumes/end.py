"""`hawker volumes detach`, `destroy` and `undelete`. Each takes several volumes."""

from collections.abc import Awaitable, Callable, Sequence

import click

from hawker.api.caller import Caller
from hawker.api.contract.volume import DELETE_VOLUME, DETACH_VOLUME, UNDELETE_VOLUME
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus
from hawker.cli.options import app_option
from hawker.cli.output import Form, note, output_option
from hawker.cli.several import change_each
from hawker.cli.volumes import OwnedVolume, find_volume, volumes_argument

Act = Callable[[Caller, OwnedVolume], Awaitable[object]]


@click.command("destroy")
@volumes_argument
@app_option
@output_option
@click.pass_context
def destroy(ctx: click.Context, volumes: tuple[str, ...], app: str | None, form: Form) -> int:
    """Destroy volumes that no machine has. `hawker volumes undelete` works for 24 hours; their snapshots are kept for
    their own retention."""
    status = _each(ctx, volumes, app, form, lambda caller, owned: caller.call(DELETE_VOLUME, params=owned.params))
    if status == ExitStatus.OK:
        note("undelete within 24 hours: hawker volumes undelete VOLUME")
    return status


@click.command("detach")
@volumes_argument
@app_option
@output_option
@click.pass_context
def detach(ctx: click.Context, volumes: tuple[str, ...], app: str | None, form: Form) -> int:
    """Detach volumes from their stopped machines, so that others can have them. Such a machine takes its volume back
    when it starts, if that is free then; else it does not start."""
    return _each(ctx, volumes, app, form, lambda caller, owned: caller.call(DETACH_VOLUME, params=owned.params))


@click.command("undelete")
@volumes_argument
@app_option
@output_option
@click.pass_context
def undelete(ctx: click.Context, volumes: tuple[str, ...], app: str | None, form: Form) -> int:
    """Undelete volumes that were destroyed less than 24 hours ago; `hawker volumes list --all` shows them."""
    return _each(ctx, volumes, app, form, lambda caller, owned: caller.call(UNDELETE_VOLUME, params=owned.params))


def _each(ctx: click.Context, references: Sequence[str], app: str | None, form: Form, act: Act) -> int:
    """Prints the id of each volume that `act` did."""

    async def act_on_one(caller: Caller, reference: str) -> str:
        owned = await find_volume(caller, reference, app)
        await act(caller, owned)
        return owned.volume.id

    return talk(ctx, lambda caller: change_each(references, form, lambda reference: act_on_one(caller, reference)))
