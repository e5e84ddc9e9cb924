"""`hawker launch`: a fly.toml for an image, which other clients of that format read too."""

from pathlib import Path
from typing import Any

import click

from hawker.cli.commands.config import write_new
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.fly_file import NAMES
from hawker.cli.output import Form, output_option
from hawker.config.effective import PRESETS
from hawker.flytoml.reader import read_app_config
from hawker.flytoml.writer import toml_text


@click.command("launch")
@click.option("-n", "--name", metavar="APP", required=True, help="The app's name.")
@click.option("-i", "--image", metavar="IMAGE", required=True, help="What its machines are made from.")
@click.option("-r", "--region", metavar="REGION", help="Where new machines go first.")
@click.option("-p", "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Where the app answers HTTP.")
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
