"""Options and arguments that several commands share, and how many options become one value."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeAlias

import click
import msgspec

from hawker.cli.machines import complete_machine
from hawker.cli.notation import OneOf, Written, pair, seconds
from hawker.config import MachineConfig
from hawker.config.placement import SPREAD, Spread
from hawker.config.placement import Placement as Wanted

Command: TypeAlias = Callable[..., Any]

DEFAULT_APP = "default"
START_WITHIN_S = 300.0


def gathered(
    kind: type[Any], name: str, options: Iterable[Callable[[Command], Command]]
) -> Callable[[Command], Command]:
    """A decorator that adds `options` and passes them on as one `kind`, a dataclass with a field for each."""

    def decorate(command: Command) -> Command:
        names = [field.name for field in fields(kind)]

        @wraps(command)
        def call(*args: Any, **values: Any) -> Any:
            whole = kind(**{each: values.pop(each) for each in names})
            return command(*args, **{name: whole}, **values)

        decorated: Command = call
        for option in reversed(list(options)):
            decorated = option(decorated)
        return decorated

    return decorate


app_option = click.option(
    "-a", "--app", metavar="NAME", envvar="HAWKER_APP", show_envvar=True, help="The machine's app."
)
"""Passed on as `app`; None means all apps, or for an order the default one."""

machine_argument = click.argument("machine", metavar="MACHINE", shell_complete=complete_machine)
"""An id, the unique beginning of one, or a name."""

machines_argument = click.argument(
    "machines", metavar="MACHINE...", nargs=-1, required=True, shell_complete=complete_machine
)

command_argument = click.argument("arguments", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)

within_option = click.option(
    "--timeout",
    "within_s",
    type=Written(seconds, "duration"),
    default=START_WITHIN_S,
    metavar="TIME",
    help="How long to wait, such as 30 or 1m30s; default 5 minutes.",
)
wait_option = click.option("--wait/--no-wait", default=True, help="Wait for the result, or not.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
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
        click.option("-r", "--region", metavar="LIST", help="Regions of the machine: codes, the best first, or any."),
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
