"""The options that say where an order's machines are to be, once for all commands that take them."""

import click
import msgspec

from hawker.cli.notation import OneOf, Written, pair
from hawker.cli.options import app_option, completed, gathered
from hawker.config import MachineConfig
from hawker.config.placement import SPREAD, Spread
from hawker.config.placement import Placement as Wanted
from hawker.value_object import ValueObject


class PlacementOptions(ValueObject, frozen=True, kw_only=True):
    """What an order says beside its config, and where its machines are to be."""

    app: str | None
    name: str | None
    region: str | None
    order_id: str | None
    label: tuple[tuple[str, str], ...] = ()
    driver: str | None = None
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
