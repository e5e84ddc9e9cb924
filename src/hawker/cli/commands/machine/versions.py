"""`hawker machine versions`."""

from collections.abc import Sequence

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import LIST_VERSIONS, MachineVersion
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show, table
from hawker.config.effective import guest


@click.command("versions")
@machine_argument
@app_option
@output_option
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """The versions of a machine's config, newest first; -o json has them in full."""
    show(talk(ctx, lambda caller: _versions(caller, machine, app)), form, versions_table)


async def _versions(caller: Caller, reference: str, app: str | None) -> tuple[MachineVersion, ...]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_VERSIONS, params=found.params)


def versions_table(versions: Sequence[MachineVersion]) -> str:
    return table(("VERSION", "IMAGE", "CPUS", "MEMORY"), map(_row, versions))


def _row(version: MachineVersion) -> tuple[object, ...]:
    size = guest(version.user_config)
    return (version.version, version.user_config.image, f"{size.cpus} {size.cpu_kind}", f"{size.memory_mb} MiB")
