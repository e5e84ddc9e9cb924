"""The options that describe a machine, and those that say where it is to be, once for all commands that take them."""

import os
from pathlib import Path

import click
import msgspec

from hawker.cli import config_notation, notation
from hawker.cli.machine_config import ConfigSources, Flags
from hawker.cli.notation import OneOf, Written, pair
from hawker.cli.options import app_option, completed, gathered
from hawker.config import MachineConfig
from hawker.config.effective import PRESETS
from hawker.config.machine import Mount
from hawker.config.placement import SPREAD, Spread
from hawker.config.placement import Placement as Wanted
from hawker.config.process_rules import MAX_UPLOAD_BYTES
from hawker.value_object import ValueObject


def _one_volume(ctx: click.Context, param: click.Parameter, mounts: tuple[Mount, ...]) -> Mount | None:
    """None where none was given. The last of two would take the place of the first without a word, and what a machine
    writes to the path of that one would be lost with its root filesystem."""
    if len(mounts) > 1:
        paths = " and ".join(str(each.path) for each in mounts)
        raise click.BadParameter(f"a machine has at most one volume, not one each at {paths}", ctx, param)
    return mounts[0] if mounts else None


_OPTIONS = (
    click.option("-e", "--env", metavar="NAME[=VALUE]", multiple=True, type=Written(notation.variable, "variable"),
                 help="Set a variable; NAME alone takes the value from your environment."),
    click.option("--env-file", metavar="FILE", multiple=True,
                 help="Set the variables in a file, one NAME=VALUE a line."),
    click.option("--unset-env", metavar="NAME", multiple=True, help="Remove a variable of the earlier config."),
    click.option("--cpus", metavar="N", type=Written(notation.whole_cpus, "cpus"), help="How many cpus."),
    click.option("--cpu-kind", type=click.Choice(["shared", "performance"]), help="Shared cpus may be oversold."),
    click.option("-m", "--memory", metavar="MIB", type=Written(notation.memory_mib, "memory"),
                 help="Such as 512, 512m or 1g."),
    click.option("--vm-size", metavar="PRESET", type=click.Choice(list(PRESETS)),
                 help="A size by name, such as shared-cpu-2x or performance-1x."),
    click.option("--restart", metavar="POLICY", type=Written(config_notation.restart, "policy"),
                 help="no, always, on-failure or on-failure:RETRIES."),
    click.option("--rm/--no-rm", default=None, help="Destroy the machine when it ends."),
    click.option("--entrypoint", metavar="COMMAND", type=Written(notation.words, "command"),
                 help="Replace the image's entrypoint; split as a shell does."),
    click.option("-u", "--user", metavar="USER", help="Run as this user instead of the image's."),
    click.option("-f", "--file", metavar="PATH=LOCAL", multiple=True, type=Written(notation.local_file, "file"),
                 help="Put a local file into the machine, at each of its starts. 256 MiB at most."),
    click.option("-v", "--volume", metavar="VOLUME:PATH", multiple=True, type=Written(config_notation.mount, "mount"),
                 callback=_one_volume, shell_complete=completed("mounts"),
                 help="Mount a volume, given by its id or its name. A machine has one at most."),
    click.option("--metadata", metavar="KEY=VALUE", multiple=True, type=Written(notation.pair, "pair"),
                 help="Set metadata."),
    click.option("--check", metavar="CHECK", multiple=True, type=Written(config_notation.check, "check"),
                 help="Such as tcp:5432, http:8080/ready or web=http:80/,interval=5s,timeout=2s,grace=1s."),
    click.option("-p", "--publish", metavar="[ADDRESS:]PORT[:INTERNAL][/HANDLERS]", multiple=True,
                 type=Written(config_notation.published, "port"),
                 help="Publish a port of the machine at one of the host, such as 8080:80, 127.0.0.1:5432:5432 or"
                 " 8080:80/http."),
    click.option("--stop-signal", metavar="SIGNAL", help="The signal that stop sends first."),
    click.option("--stop-timeout", metavar="TIME", type=Written(config_notation.duration, "duration"),
                 help="How long stop waits before the kill, such as 30 or 1m30s."),
    click.option("--schedule", type=click.Choice(["hourly", "daily", "weekly", "monthly"]),
                 help="Start it once in each; for a job that ends by itself."),
    click.option("--config", metavar="FILE",
                 help="Start from a whole machine config as JSON; the other options change it."),
)  # fmt: skip


machine_options = gathered(Flags, "flags", _OPTIONS)
"""Adds them all, passed on together as `flags`."""


def sources() -> ConfigSources:
    """Where this process takes contents from."""
    return ConfigSources(environ=os.environ, read=_read)


def _read(name: str) -> bytes:
    with Path(name).open("rb") as file:
        return file.read(MAX_UPLOAD_BYTES + 1)


class PlacementOptions(ValueObject, frozen=True, kw_only=True):
    """What an order says beside its config, and where its machines are to be."""

    app: str | None
    """Its name; None: the default one."""
    name: str | None
    """The machine's; None: one is made up."""
    region: str | None
    """A code, several with commas, or an alias; None: any."""
    order_id: str | None
    """The same one is filled once; None: one is made up."""
    label: tuple[tuple[str, str], ...] = ()
    """Keys and values that a node must have to get it."""
    driver: str | None = None
    """Only on nodes that offer this one; None: on any."""
    spread: Spread | None = None

    def within(self, config: MachineConfig) -> MachineConfig:
        """The config that says so itself, and goes on saying it wherever the machine is moved."""
        said = Wanted(labels=dict(self.label), driver=self.driver).metadata()
        if self.spread is not None:
            said[SPREAD] = self.spread.value
        return msgspec.structs.replace(config, metadata={**(config.metadata or {}), **said}) if said else config


placement_options = gathered(
    PlacementOptions,
    "placement",
    (
        app_option,
        click.option("-n", "--name", metavar="NAME", help="The machine's name, unique in its app."),
        click.option(
            "-r",
            "--region",
            metavar="LIST",
            shell_complete=completed("regions"),
            help="Regions of the machine: codes, the best first, or any.",
        ),
        click.option(
            "--order-id", metavar="ID", help="Make the order repeatable: the same id never makes a second machine."
        ),
        click.option(
            "--label",
            metavar="KEY=VALUE",
            multiple=True,
            type=Written(pair, "pair"),
            help="Only on nodes with this label.",
        ),
        click.option("--driver", metavar="NAME", help="Only on nodes that offer this driver."),
        click.option("--spread", type=OneOf(Spread), help="How machines of the app avoid each other; default soft."),
    ),
)
