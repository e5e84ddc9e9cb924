"""`hawker machine clone`: an order with the config of a machine that there is."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE, CreateMachineRequest
from hawker.cli import ordering
from hawker.cli.connect import talk
from hawker.cli.machine_config import Flags, configured
from hawker.cli.machine_options import machine_options, sources
from hawker.cli.machines import Owned, find_machine
from hawker.cli.options import app_option, command_argument, completed, machine_argument, wait_option, within_option
from hawker.cli.ordering import ClientOrder
from hawker.cli.output import Form, output_option, show
from hawker.cli.summary import started
from hawker.clock import SystemClock
from hawker.config import MachineConfig

_HELP = """Order another machine with the config of MACHINE; options change what they name.

\b
Examples:
  hawker machine clone web
  hawker machine clone web --name web-2 --to-app staging -e LEVEL=debug
"""


@click.command("clone", help=_HELP)
@machine_argument
@command_argument
@app_option
@click.option("-n", "--name", metavar="NAME", help="The new machine's name.")
@click.option(
    "-r",
    "--region",
    metavar="CODE",
    shell_complete=completed("regions"),
    help="The new machine's region; by default that of the first machine.",
)
@click.option("--to-app", metavar="NAME", help="Another app, which must exist.")
@machine_options
@wait_option
@within_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    machine: str,
    arguments: tuple[str, ...],
    app: str | None,
    name: str | None,
    region: str | None,
    to_app: str | None,
    flags: Flags,
    wait: bool,
    within_s: float,
    form: Form,
) -> None:
    async def clone(caller: Caller) -> Owned:
        found = await find_machine(caller, machine, app)
        first = await caller.call(GET_MACHINE, params=found.params)
        config = configured(first.config or MachineConfig(), flags, sources(), command=arguments)
        request = CreateMachineRequest(config=config, name=name, region=region or first.region)
        order = ClientOrder(app=to_app or found.app, request=request, files=flags.file)
        if wait:
            return Owned(order.app_name, await ordering.start(caller, order, SystemClock(), within_s))
        return Owned(order.app_name, await ordering.place(caller, order))

    done = talk(ctx, clone)
    show(done.machine, form, lambda machine: started(done.app, machine))
