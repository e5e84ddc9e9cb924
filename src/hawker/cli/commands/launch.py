"""`hawker launch`: a fly.toml for an image, which other clients of that format read too."""

import re
from pathlib import Path
from typing import Any

import click

from hawker.cli.commands.config import write_new
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.fly_file import NAMES
from hawker.cli.options import completed
from hawker.cli.output import Form, note, output_option
from hawker.config.effective import PRESETS
from hawker.flytoml.reader import read_app_config
from hawker.flytoml.writer import toml_text

_PORT_HELP = "Where the app answers HTTP; the first EXPOSE of a Dockerfile beside the file, unless told."


@click.command("launch")
@click.option("-n", "--name", metavar="APP", required=True, help="The app's name.")
@click.option(
    "-i",
    "--image",
    metavar="IMAGE",
    shell_complete=completed("images"),
    required=True,
    help="What its machines are made from.",
)
@click.option(
    "-r", "--region", metavar="REGION", shell_complete=completed("regions"), help="Where new machines go first."
)
@click.option("-p", "--port", type=click.IntRange(1, 65535), metavar="PORT", help=_PORT_HELP)
@click.option("--vm-size", metavar="SIZE", type=click.Choice(list(PRESETS)), help="A size such as shared-cpu-1x.")
@click.option("--vm-memory", metavar="SIZE", help="Memory of each machine, such as 512mb.")
@click.option("--vm-cpus", type=click.IntRange(1), metavar="COUNT", help="Processors of each machine.")
@click.option("-c", "--config", "file", metavar="FILE", default=NAMES[0], show_default=True, help="What to write.")
@click.option("-y", "--yes", is_flag=True, help="Write over a file that is there.")
@output_option
def command(
    name: str,
    image: str,
    region: str | None,
    port: int | None,
    vm_size: str | None,
    vm_memory: str | None,
    vm_cpus: int | None,
    file: str,
    yes: bool,
    form: Form,
) -> None:
    """Write a fly.toml for an image. Nothing is ordered and no node is asked.

    \b
    Examples:
      hawker launch --name shop --image registry.local:5000/shop:1 --port 8080
      hawker launch --name jobs --image registry.local:5000/jobs:1 --vm-memory 1gb
    """
    if Path(file).suffix != ".toml":
        raise Failure("a .toml file is written: name one", ExitStatus.USAGE)
    if port is None:
        port = _exposed(Path(file).with_name("Dockerfile"))
    vm = {"size": vm_size, "memory": vm_memory, "cpus": vm_cpus}
    document: dict[str, Any] = {
        "app": name,
        "primary_region": region,
        "build": {"image": image},
        "http_service": None if port is None else {"internal_port": port, "force_https": True},
        "vm": [vm] if any(vm.values()) else None,
    }
    text = toml_text(document)
    problems = read_app_config(text, ".toml").problems
    if problems:
        raise Failure("; ".join(f"{each.path}: {each.text}" for each in problems), ExitStatus.USAGE)
    write_new(Path(file), text, over=yes, form=form)


_EXPOSE = re.compile(r"^\s*EXPOSE\s+(\d{1,5})(/tcp)?(\s|$)", re.IGNORECASE | re.MULTILINE)
_MOST_BYTES = 256 * 1024


def _exposed(dockerfile: Path) -> int | None:
    """The port that a Dockerfile says first, if there is one; it is not read for anything else, nor built."""
    try:
        with dockerfile.open(encoding="utf-8", errors="replace") as file:
            found = _EXPOSE.search(file.read(_MOST_BYTES))
    except OSError:
        return None
    port = int(found.group(1)) if found is not None else 0
    if not 1 <= port <= 65535:
        return None
    note(f"{dockerfile} says that the app answers at port {port}")
    return port
