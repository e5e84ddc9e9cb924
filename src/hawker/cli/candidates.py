"""What a shell offers where a machine is to be named. Asks the node, and offers nothing when that does not answer."""

import click
from click.shell_completion import CompletionItem

from hawker.api.contract.machine import ListMachinesQuery
from hawker.cli.connect import talk
from hawker.cli.machines import Owned, list_machines
from hawker.errors import HawkerError


def complete_machine(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids of those that live."""
    app = ctx.params.get("app")
    try:
        machines = talk(ctx, lambda caller: list_machines(caller, app, ListMachinesQuery(summary=True)))
    except HawkerError:
        return []
    return [item for owned in machines for item in _items(owned) if item.value.startswith(incomplete)]


def _items(owned: Owned) -> tuple[CompletionItem, CompletionItem]:
    about = f"{owned.app}, {owned.machine.state}"
    return CompletionItem(owned.machine.name, help=about), CompletionItem(owned.machine.id, help=about)
