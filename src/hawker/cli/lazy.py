"""Commands that are imported when they are run. The one place that imports by name: a tree of forty commands starts as
fast as the one that is wanted. Names and short helps stand in the tables, so help and completion import nothing either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class CommandModule:
    """Where a command stands; `hidden` for other spellings of a name."""

    module: str
    summary: str
    hidden: bool = False
    attribute: str = "command"

    def load(self) -> click.Command:
        command = found(self.module, self.attribute)
        assert isinstance(command, click.Command), f"{self.module}.{self.attribute} is no command"
        return command

    def sign(self, name: str) -> click.Command:
        """What stands for the command in lists."""
        return click.Command(name, help=self.summary, hidden=self.hidden)


def found(module: str, attribute: str) -> Any:
    """Import it now."""
    return getattr(import_module(module), attribute)


class LazyGroup(click.Group):
    """A group made from a table. Commands keep the table's order."""

    def __init__(self, name: str, table: Mapping[str, CommandModule], **attributes: object) -> None:
        signs = {key: place.sign(key) for key, place in table.items()}
        super().__init__(name, commands=signs, **attributes)  # type: ignore[arg-type]
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command itself instead of its sign: from here on it is run, or asked for its own help."""
        name, sign, rest = super().resolve_command(ctx, args)
        return name, self.table[sign.name].load() if sign is not None and sign.name else None, rest
