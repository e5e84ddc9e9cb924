"""`hawker config`: an app's file, checked here, and what the app was last deployed with."""

from pathlib import Path
from typing import Any

import click
import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.fly_file import NAMES, FlyFile, config_option, lax_option, read_fly_file
from hawker.cli.options import completed, one_app_option
from hawker.cli.output import Form, as_json, fields, output_option, show_change
from hawker.config import MachineConfig, guest
from hawker.flytoml.machines import machine_configs
from hawker.flytoml.writer import toml_text

_app_option = click.option(
    "-a",
    "--app",
    metavar="NAME",
    shell_complete=completed("apps"),
    help="The app: print what it was last deployed with.",
)


@click.group("config", no_args_is_help=True)
def command() -> None:
    """Check an app's fly.toml, show it, or write it anew from what the app was last deployed with.

    \b
    Examples:
      hawker config validate
      hawker config validate -c fly.production.toml -o json
      hawker config show -a shop
      hawker config save -a shop -c shop.toml
    """


@command.command("validate")
@config_option
@lax_option
@output_option
def validate(file: str | None, lax: bool, form: Form) -> None:
    """Say all that is wrong with a file, with line and column. -o json prints the machine config of each process group.

    Nothing is asked of a node, so what a node lacks is found when machines are ordered.
    """
    found = read_fly_file(file, lax=lax)
    machines = machine_configs(found.config, local=found.local_files())
    click.echo(as_json(machines) if form is Form.JSON else _summary(found, machines))


def _summary(found: FlyFile, machines: dict[str, MachineConfig]) -> str:
    image = found.config.build.image if found.config.build else None
    rows = [("file", f"{found.path} is valid"), ("app", found.config.app or "-"), ("image", image or "-")]
    rows += [(f"group {group}", _size(machine)) for group, machine in machines.items()]
    return fields(tuple(rows))


def _size(machine: MachineConfig) -> str:
    if machine.guest is None:
        return "the size that its machines have"
    size = guest(machine)
    return f"{size.cpus} {size.cpu_kind} cpu{'s' if size.cpus > 1 else ''}, {size.memory_mb} MiB"


@command.command("show")
@_app_option
@config_option
@lax_option
@output_option
@click.pass_context
def show(ctx: click.Context, app: str | None, file: str | None, lax: bool, form: Form) -> None:
    """Print what an app was last deployed with, as JSON. Without --app, print the file that is here."""
    click.echo(as_json(read_fly_file(file, lax=lax).document if app is None else _told(ctx, app)))


@command.command("save")
@one_app_option
@click.option("-c", "--config", "file", metavar="FILE", default=NAMES[0], show_default=True, help="What to write.")
@click.option("-y", "--yes", is_flag=True, help="Write over a file that is there.")
@output_option
@click.pass_context
def save(ctx: click.Context, app: str, file: str, yes: bool, form: Form) -> None:
    """Write what an app was last deployed with to a file. JSON if its name ends in .json, else TOML."""
    path = Path(file)
    if path.suffix in (".yaml", ".yml"):
        raise Failure("YAML is read, not written: name a .toml or .json file", ExitStatus.USAGE)
    document = _told(ctx, app)
    document["app"] = app
    write_new(path, as_json(document) + "\n" if path.suffix == ".json" else toml_text(document), over=yes, form=form)


def write_new(path: Path, text: str, *, over: bool, form: Form) -> None:
    """And say so. Raises `Failure` for one that is there, unless `over`."""
    try:
        with path.open("w" if over else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Failure(f"{path} is there: --yes writes over it", ExitStatus.USAGE) from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", ExitStatus.FAILED) from None
    show_change(form, f"wrote {path}", file=str(path))


def _told(ctx: click.Context, app: str) -> dict[str, Any]:
    """By the newest release that is complete, else by the newest. Raises `Failure` where none has a definition."""
    params = AppParams(app_name=app)

    def told(status: str | None) -> object:
        query = ListReleasesQuery(limit=1, status=status)
        found = talk(ctx, lambda caller: caller.call(LIST_RELEASES, params=params, query=query)).releases
        return found[0].definition if found else None

    definition = told("complete") or told(None)
    if not isinstance(definition, dict):
        raise Failure(f"app {app} has no release with a config", ExitStatus.NOT_FOUND)
    return msgspec.convert(definition, dict[str, Any])
