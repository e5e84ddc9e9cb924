"""`hawker machine update`: the config that is there, changed by flags, as a new version."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE, UPDATE_MACHINE, Machine, UpdateMachineRequest
from hawker.api.contract.port import PublishedPortState
from hawker.cli import waiting
from hawker.cli.connect import talk
from hawker.cli.machine_config import Flags, configured
from hawker.cli.machine_options import machine_options, sources
from hawker.cli.machines import Owned, find_machine
from hawker.cli.options import app_option, command_argument, completed, machine_argument, wait_option, within_option
from hawker.cli.output import Form, output_option, show
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
    arguments: tuple[str, ...]
    flags: Flags
    skip_launch: bool

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
def command(
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
