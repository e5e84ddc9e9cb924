"""`hawker machine memory`: what memory a running machine has, another limit, and what it can give back."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine_operation import (
    GET_MEMORY,
    RECLAIM_MEMORY,
    SET_MEMORY,
    MemoryAnswer,
    ReclaimAnswer,
    ReclaimRequest,
    SetMemoryRequest,
)
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.notation import Written, memory_mib
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show, table


@click.group("memory")
def command() -> None:
    """Show and change the memory of a running machine. A change holds until the machine is started again."""


@command.command("show")
@machine_argument
@app_option
@output_option
@click.pass_context
def show_memory(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """Show the limit, and how much of it the machine could still use."""
    show(talk(ctx, lambda caller: _memory(caller, machine, app)), form, _table)


@command.command("set")
@machine_argument
@click.argument("limit", metavar="SIZE", type=Written(memory_mib, "size"))
@app_option
@output_option
@click.pass_context
def set_memory(ctx: click.Context, machine: str, limit: int, app: str | None, form: Form) -> None:
    """Change the limit. At most memory or max_memory of the config, at least what the machine uses."""
    show(talk(ctx, lambda caller: _set(caller, machine, app, limit)), form, _table)


@command.command("reclaim")
@machine_argument
@click.argument("amount", metavar="SIZE", type=Written(memory_mib, "size"))
@app_option
@output_option
@click.pass_context
def reclaim(ctx: click.Context, machine: str, amount: int, app: str | None, form: Form) -> None:
    """Reclaim caches of the machine. Prints how much was freed."""
    given = talk(ctx, lambda caller: _reclaim(caller, machine, app, amount))
    show(given, form, lambda given: table(("RECLAIMED",), [(f"{given.actual_mb} MiB",)]))


def _table(found: MemoryAnswer) -> str:
    return table(("LIMIT", "AVAILABLE"), [(f"{found.limit_mb} MiB", f"{found.available_mb} MiB")])


async def _memory(caller: Caller, reference: str, app: str | None) -> MemoryAnswer:
    found = await find_machine(caller, reference, app)
    return await caller.call(GET_MEMORY, params=found.params)


async def _set(caller: Caller, reference: str, app: str | None, limit_mib: int) -> MemoryAnswer:
    found = await find_machine(caller, reference, app)
    return await caller.call(SET_MEMORY, params=found.params, body=SetMemoryRequest(limit_mb=limit_mib))


async def _reclaim(caller: Caller, reference: str, app: str | None, amount_mib: int) -> ReclaimAnswer:
    found = await find_machine(caller, reference, app)
    return await caller.call(RECLAIM_MEMORY, params=found.params, body=ReclaimRequest(amount_mb=amount_mib))
