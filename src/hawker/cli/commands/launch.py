"""`hawker launch`: a fly.toml for an image, which other clients of that format read too."""

import re
import sys
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
@click.option("-n", "--name", metavar="APP", help="The app's name; asked for, as the folder is called unless told.")
@click.option(
    "-i",
    "--image",
    metavar="IMAGE",
    shell_complete=completed("images"),
    help="What its machines are made from; asked for.",
)
@click.option(
    "-r",
    "--region",
    metavar="REGION",
    shell_complete=completed("regions"),
    help="Where new machines go first; asked for.",
)
@click.option("-p", "--port", type=click.IntRange(1, 65535), metavar="PORT", help=_PORT_HELP)
@click.option("--vm-size", metavar="SIZE", type=click.Choice(list(PRESETS)), help="A size such as shared-cpu-1x.")
@click.option("--vm-memory", metavar="SIZE", help="Memory of each machine, such as 512mb.")
@click.option("--vm-cpus", type=click.IntRange(1), metavar="COUNT", help="Processors of each machine.")
@click.option("-c", "--config", "file", metavar="FILE", default=NAMES[0], show_default=True, help="What to write.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing, and write over a file that is there.")
@output_option
def command(
    name: str | None,
    image: str | None,
    region: str | None,
    port: int | None,
    vm_size: str | None,
    vm_memory: str | None,
    vm_cpus: int | None,
    file: str,
    yes: bool,
    form: Form,
) -> None:
    """Write a fly.toml for an image. Nothing is ordered and no node is asked. What is not given is asked for at a
    terminal, and taken from a Dockerfile beside the file where that says it; with --yes and in scripts nothing is.

    \b
    Examples:
      hawker launch
      hawker launch --name shop --image registry.local:5000/shop:1 --port 8080
      hawker launch --name jobs --image registry.local:5000/jobs:1 --vm-memory 1gb
    """
    if Path(file).suffix != ".toml":
        raise Failure("a .toml file is written: name one", ExitStatus.USAGE)
    asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    found = _read(Path(file).with_name("Dockerfile"))
    name = name or _needed("name", "App name", _name_of(Path(file).resolve().parent), asks=asks)
    image = image or _needed("image", "Image", None, asks=asks)
    if asks and region is None:
        region = _answer("Region, or nothing for any", "") or None
    if port is None:
        port = _port(found) if asks else found
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


# What is asked for.


def _needed(option: str, question: str, usual: str | None, *, asks: bool) -> str:
    """Raises `Failure` where nobody can be asked."""
    if not asks:
        raise Failure(f"--{option} is missing: give it, or call this at a terminal without --yes", ExitStatus.USAGE)
    return _answer(question, usual)


def _answer(question: str, usual: str | None) -> str:
    return str(click.prompt(question, default=usual, err=True, show_default=bool(usual))).strip()


def _port(found: int | None) -> int | None:
    usual = "none" if found is None else str(found)
    while True:
        said = _answer("Port at which it answers HTTP, or none", usual)
        if said == "none":
            return None
        if said.isdecimal() and 1 <= int(said[:9]) <= 65535:
            return int(said)
        note(f"{said[:40]!r} is no port: 1 to 65535, or none")


def _name_of(folder: Path) -> str | None:
    """What an app of this folder may be called."""
    return re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:63] or None


# What a Dockerfile says. It is not built.

_EXPOSE = re.compile(r"^\s*EXPOSE\s+(\d{1,5})(/tcp)?(\s|$)", re.IGNORECASE | re.MULTILINE)
_CMD = re.compile(r"^[ \t]*CMD[ \t]+(\S[^\n]{0,200})", re.IGNORECASE | re.MULTILINE)
_MOST_BYTES = 256 * 1024


def _read(dockerfile: Path) -> int | None:
    """Its first port. Its command is that of its image, and only told."""
    try:
        with dockerfile.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        return None
    exposed, commands = _EXPOSE.search(text), _CMD.findall(text)
    port = int(exposed.group(1)) if exposed is not None else 0
    if commands:
        note(f"{dockerfile} says that its image starts {commands[-1].strip()}")
    if not 1 <= port <= 65535:
        return None
    note(f"{dockerfile} says that the app answers at port {port}")
    return port
