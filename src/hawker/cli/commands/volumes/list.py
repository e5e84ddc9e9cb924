"""`hawker volumes list` and `show`."""

import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.volume import GET_VOLUME, ListVolumesQuery, Volume
from hawker.cli.connect import talk
from hawker.cli.machines import Away
from hawker.cli.options import app_option
from hawker.cli.output import Form, as_json, output_option, wide_output_option
from hawker.cli.volumes import LEAVING, OwnedVolume, about, find_volume, list_volumes, listing, volume_argument
from hawker.clock import SystemClock


class ListedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume as JSON says it, with its app: the API's answers are about one app and leave that out."""

    app: str
    """Its name."""
    volume: Volume


@click.command("list")
@app_option
@click.option("--all", "everything", is_flag=True, help="Also destroyed volumes, as long as undelete works.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@wide_output_option
@click.pass_context
def command(ctx: click.Context, app: str | None, everything: bool, quiet: bool, form: Form) -> None:
    """List volumes: of one app, or of all."""
    query = ListVolumesQuery(summary=quiet)
    away = Away()
    found = talk(ctx, lambda caller: list_volumes(caller, app, query, away))
    shown = [owned for owned in found if everything or owned.volume.state not in LEAVING]
    click.echo(_as_text(shown, quiet, form), nl=bool(shown) or not quiet)
    away.tell()


def _as_text(volumes: list[OwnedVolume], quiet: bool, form: Form) -> str:
    if quiet:
        return "\n".join(owned.volume.id for owned in volumes)
    if form is Form.JSON:
        return as_json([ListedVolume(app=owned.app, volume=owned.volume) for owned in volumes])
    return listing(volumes, instant(SystemClock().now()), wide=form is Form.WIDE)


@click.command("show")
@volume_argument
@app_option
@output_option
@click.pass_context
def show_volume(ctx: click.Context, volume: str, app: str | None, form: Form) -> None:
    """Show a volume."""

    async def look(caller: Caller) -> OwnedVolume:
        found = await find_volume(caller, volume, app)
        return OwnedVolume(found.app, await caller.call(GET_VOLUME, params=found.params))

    found = talk(ctx, look)
    click.echo(about(found) if form is Form.TABLE else as_json(found.volume))
