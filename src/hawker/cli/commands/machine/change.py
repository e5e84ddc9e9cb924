"""`hawker machine update`, `metadata` and `memory`: the config that is there, changed by flags; the pairs that a
machine is labelled with; and what memory a running machine has, and another limit of it.
"""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import (
    GET_MACHINE,
    LIST_METADATA,
    UPDATE_MACHINE,
    UPDATE_METADATA,
    Machine,
    UpdateMachineRequest,
    UpdateMetadataRequest,
)
from hawker.api.contract.machine_operation import (
    GET_MEMORY,
    RECLAIM_MEMORY,
    SET_MEMORY,
    MemoryAnswer,
    ReclaimAnswer,
    ReclaimRequest,
    SetMemoryRequest,
)
from hawker.api.contract.port import PublishedPortState
from hawker.cli import waiting
from hawker.cli.connect import talk
from hawker.cli.machine_config import Flags, configured
from hawker.cli.machine_options import machine_options, sources
from hawker.cli.machines import Owned, find_machine
from hawker.cli.notation import Written, memory_mib, pair
from hawker.cli.options import app_option, command_argument, completed, machine_argument, wait_option, within_option
from hawker.cli.output import Form, output_option, show, show_change, table
from hawker.cli.progress import pull_if_missing
from hawker.cli.publishing import addresses, published, warn
from hawker.cli.summary import started
from hawker.cli.uploads import upload
from hawker.clock import SystemClock
from hawker.config import MachineConfig
from hawker.value_object import ValueObject

_HELP = """Give MACHINE a new config, which makes a new version and restarts it. An option changes only its own field;
--config replaces the whole config.

\b
Examples:
  hawker machine update web --image registry.local:5000/web:4
  hawker machine update web -e LEVEL=debug --unset-env OLD --memory 1g
"""


class Change(ValueObject, frozen=True):
    image: str | None
    """The one that is wanted; None: as it was."""
    arguments: tuple[str, ...]
    """The command that is wanted; empty: as it was."""
    flags: Flags
    skip_launch: bool
    """The machine is changed and left off."""

    def config(self, before: MachineConfig) -> MachineConfig:
        return configured(before, self.flags, sources(), image=self.image, command=self.arguments)


@click.command("update", help=_HELP)
@machine_argument
@command_argument
@app_option
@click.option("-i", "--image", metavar="IMAGE", shell_complete=completed("images"), help="Run this image.")
@machine_options
@click.option("--skip-launch", is_flag=True, help="Leave the machine stopped.")
@wait_option
@within_option
@output_option
@click.pass_context
def update_command(
    ctx: click.Context,
    machine: str,
    arguments: tuple[str, ...],
    app: str | None,
    image: str | None,
    flags: Flags,
    skip_launch: bool,
    wait: bool,
    within_s: float,
    form: Form,
) -> None:
    change = Change(image, arguments, flags, skip_launch)

    async def update(caller: Caller) -> tuple[Owned, tuple[PublishedPortState, ...]]:
        found = await find_machine(caller, machine, app)
        updated = await _update(caller, found, change, within_s if wait else None)
        runs = wait and not skip_launch
        ports = await published(caller, found.params, updated.config, SystemClock()) if runs else ()
        return Owned(found.app, updated), ports

    done, ports = talk(ctx, update)
    show(done.machine, form, lambda machine: started(done.app, machine, addresses(ports)))


async def _update(caller: Caller, found: Owned, change: Change, within_s: float | None) -> Machine:
    """Guarded by the version that the flags were applied to, so that no one's change in between is lost."""
    before = await caller.call(GET_MACHINE, params=found.params)
    config = change.config(before.config or MachineConfig())
    warn(config, before.config)
    if config.image and (before.config is None or config.image != before.config.image):
        await pull_if_missing(caller, config.image, found.app)
    await upload(caller, found.app, config, change.flags.file)
    request = UpdateMachineRequest(
        config=config, current_version=before.version, skip_launch=change.skip_launch or None
    )
    updated = await caller.call(UPDATE_MACHINE, params=found.params, body=request)
    if within_s is None:
        return updated
    if change.skip_launch:
        await waiting.reach(caller, found.params, waiting.AT_REST, SystemClock(), within_s, version=updated.version)
        return await caller.call(GET_MACHINE, params=found.params)
    return await waiting.started(caller, found.params, updated.version, SystemClock(), within_s)


@click.group("metadata")
def metadata_group() -> None:
    """Show, set and remove a machine's metadata. It needs no restart and makes no new version."""


@metadata_group.command("show")
@machine_argument
@app_option
@output_option
@click.pass_context
def show_metadata(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """Show a machine's metadata."""
    pairs = talk(ctx, lambda caller: _metadata(caller, machine, app))
    show(pairs, form, lambda pairs: table(("KEY", "VALUE"), sorted(pairs.items())))


@metadata_group.command("set")
@machine_argument
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True, type=Written(pair, "pair"))
@app_option
@output_option
@click.pass_context
def set_metadata(
    ctx: click.Context, machine: str, pairs: tuple[tuple[str, str], ...], app: str | None, form: Form
) -> None:
    """Set keys; the other keys stay."""
    talk(ctx, lambda caller: _metadata_update(caller, machine, app, dict(pairs)))
    show_change(form, None, machine=machine, set=dict(pairs))


@metadata_group.command("remove")
@machine_argument
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@app_option
@output_option
@click.pass_context
def remove_metadata(ctx: click.Context, machine: str, keys: tuple[str, ...], app: str | None, form: Form) -> None:
    """Remove keys."""
    talk(ctx, lambda caller: _metadata_update(caller, machine, app, dict.fromkeys(keys)))
    show_change(form, None, machine=machine, removed=keys)


async def _metadata(caller: Caller, reference: str, app: str | None) -> dict[str, str]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_METADATA, params=found.params)


async def _metadata_update(caller: Caller, reference: str, app: str | None, changes: dict[str, str | None]) -> None:
    found = await find_machine(caller, reference, app)
    await caller.call(UPDATE_METADATA, params=found.params, body=UpdateMetadataRequest(metadata=changes))


@click.group("memory")
def memory_group() -> None:
    """Show and change the memory of a running machine. A change holds until the machine is started again."""


@memory_group.command("show")
@machine_argument
@app_option
@output_option
@click.pass_context
def show_memory(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """Show the limit, and how much of it the machine could still use."""
    show(talk(ctx, lambda caller: _memory(caller, machine, app)), form, _table)


@memory_group.command("set")
@machine_argument
@click.argument("limit", metavar="SIZE", type=Written(memory_mib, "size"))
@app_option
@output_option
@click.pass_context
def set_memory(ctx: click.Context, machine: str, limit: int, app: str | None, form: Form) -> None:
    """Change the limit. At most memory or max_memory of the config, at least what the machine uses."""
    show(talk(ctx, lambda caller: _set(caller, machine, app, limit)), form, _table)


@memory_group.command("reclaim")
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
