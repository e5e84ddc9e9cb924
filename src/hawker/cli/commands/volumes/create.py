"""`hawker volumes create` and `fork`: a new volume, and what is said until it can be used."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest, Volume, VolumeParams
from hawker.cli.connect import talk
from hawker.cli.options import DEFAULT_APP, app_option, completed, wait_option, within_option
from hawker.cli.ordering import ensure_app
from hawker.cli.output import Form, as_json, note, output_option
from hawker.cli.progress import states_display
from hawker.cli.volumes import (
    Keeping,
    OwnedVolume,
    about,
    find_volume,
    keeping_options,
    ready,
    size_option,
    volume_argument,
)
from hawker.clock import SystemClock

_apart = click.option(
    "--require-unique-zone",
    "apart",
    is_flag=True,
    help="Have it on a host without a volume of its name, and a fork not on that of its source, where one takes it.",
)
_CREATE_HELP = """Create a volume NAME. Several volumes may have one name: a machine that asks for it gets a free one.

\b
Examples:
  hawker volumes create data --size 10
  hawker volumes create secret --encrypted
  hawker volumes create data --snapshot-id vs_0123456789abcdef
"""


@click.command("create", help=_CREATE_HELP)
@click.argument("name", metavar="NAME")
@app_option
@size_option
@click.option("-r", "--region", metavar="CODE", shell_complete=completed("regions"), help="The region of the volume.")
@click.option(
    "--encrypted/--no-encryption", default=None, help="Encrypt the volume or not; by default where the host can."
)
@click.option("--fstype", type=click.Choice(["ext4", "raw"]), help="A filesystem, or bare blocks; default ext4.")
@click.option("--snapshot-id", metavar="SNAPSHOT", help="Restore this snapshot into it.")
@_apart
@keeping_options
@wait_option
@within_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    app: str | None,
    size: int | None,
    region: str | None,
    encrypted: bool | None,
    fstype: str | None,
    snapshot_id: str | None,
    apart: bool,
    keeping: Keeping,
    wait: bool,
    within_s: float,
    form: Form,
) -> None:
    request = CreateVolumeRequest(
        name=name,
        region=region,
        size_gb=size,
        encrypted=encrypted,
        fstype="raw" if fstype == "raw" else ("ext4" if fstype else None),
        snapshot_id=snapshot_id,
        require_unique_zone=apart or None,
        snapshot_retention=keeping.snapshot_retention,
        auto_backup_enabled=keeping.scheduled_snapshots,
    )

    say(talk(ctx, lambda caller: created(caller, app, request, within_s if wait else None)), form)


@click.command("fork")
@volume_argument
@app_option
@click.option("-n", "--name", metavar="NAME", help="The new volume's name; by default the same name.")
@size_option
@_apart
@keeping_options
@wait_option
@within_option
@output_option
@click.pass_context
def fork(
    ctx: click.Context,
    volume: str,
    app: str | None,
    name: str | None,
    size: int | None,
    apart: bool,
    keeping: Keeping,
    wait: bool,
    within_s: float,
    form: Form,
) -> None:
    """Create a volume with the content of VOLUME at this moment; VOLUME may be in use."""

    async def create(caller: Caller) -> tuple[Volume, OwnedVolume]:
        source = await find_volume(caller, volume, app)
        request = CreateVolumeRequest(
            name=name or source.volume.name,
            size_gb=size,
            source_volume_id=source.volume.id,
            require_unique_zone=apart or None,
            snapshot_retention=keeping.snapshot_retention,
            auto_backup_enabled=keeping.scheduled_snapshots,
        )
        return source.volume, await ordered(caller, source.app, request, within_s if wait else None)

    source, made = talk(ctx, create)
    say(made, form)
    if apart and made.volume.zone == source.zone:
        note(f"volume {made.volume.id} is at the host of its source: no other host of the region takes it now")
    if name is None:
        note(f"several volumes of app {made.app} are named {made.volume.name} now: name this one {made.volume.id}")


async def created(caller: Caller, app: str | None, request: CreateVolumeRequest, within_s: float | None) -> OwnedVolume:
    """As `ordered`, in an app of that name or the default one, which is made when it is not there."""
    if app is None:
        await ensure_app(caller, DEFAULT_APP)
    return await ordered(caller, app or DEFAULT_APP, request, within_s)


async def ordered(caller: Caller, app: str, request: CreateVolumeRequest, within_s: float | None) -> OwnedVolume:
    """The volume, made, or with None only promised."""
    volume = await caller.call(CREATE_VOLUME, params=AppParams(app_name=app), body=request)
    if within_s is not None:
        volume = await _made(caller, app, volume, within_s)
    return OwnedVolume(app, volume)


async def _made(caller: Caller, app: str, volume: Volume, within_s: float) -> Volume:
    with states_display(f"volume {volume.id}") as show_state:
        params = VolumeParams(app_name=app, volume_id=volume.id)
        return await ready(caller, params, SystemClock(), within_s, show_state)


def say(owned: OwnedVolume, form: Form) -> None:
    click.echo(about(owned) if form is Form.TABLE else as_json(owned.volume))
