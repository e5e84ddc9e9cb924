"""`hawker machine run`, `create` and `clone`: from flags, or the config of a machine that there is, to an order, and
what is to be seen of it.
"""

from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE, CreateMachineRequest, Machine, MachineParams
from hawker.api.contract.port import PublishedPortState
from hawker.cli import ordering
from hawker.cli.connect import talk
from hawker.cli.machine_config import Flags, configured
from hawker.cli.machine_options import PlacementOptions, machine_options, placement_options, sources
from hawker.cli.machines import Owned, complete_machine, find_machine
from hawker.cli.options import (
    WordsOfAnother,
    app_option,
    command_argument,
    completed,
    machine_argument,
    wait_option,
    within_option,
)
from hawker.cli.ordering import ClientOrder, Count, count_options, filled, one_off, show_placed
from hawker.cli.output import Form, output_option, show
from hawker.cli.publishing import addresses, published, warn
from hawker.cli.summary import started
from hawker.clock import SystemClock
from hawker.config import Init, MachineConfig
from hawker.deferred import deferred

if TYPE_CHECKING:
    from hawker.cli import attach as attaching
else:
    attaching = deferred("hawker.cli.attach")  # most machines are ordered, and left

_RUN_HELP = """Order a machine from IMAGE and wait until it runs. The words after IMAGE are the machine's command.

\b
Examples:
  hawker run hawker/hello
  hawker run --rm -it alpine:3 sh
  echo hello | hawker run --rm -i alpine:3 cat
  hawker run --name web -e PORT=80 --check http:80/ registry.local/web:3
  hawker run -p 8080:80 registry.local:5000/web:3
  hawker machine run --rm --attach alpine:3 sh -c 'echo hello; exit 3'
  hawker machine run --config web.json -o json
  hawker run --region mad,eu --count 5 --spread hard registry.local/web:3

With --rm, --attach, -i or -t a machine that ends is not restarted unless --restart says so. Otherwise one that fails
is, ten times in a row, and one that exits with 0 stays stopped: --restart always is for services.

Its root filesystem is fresh at each start: what is to stay belongs on a volume (-v). It has one shared cpu and 256 MiB
of memory unless --cpus, --cpu-kind and --memory say more.
"""

_CREATE_HELP = """Order a machine from IMAGE without starting it; `hawker machine start` does that later.

\b
Examples:
  hawker machine create --name later hawker/hello
  hawker machine create --name spare --standby-for worker hawker/hello

A machine that stands by for others is a spare: it is prepared on another node, and starts when the node of one of
them is lost. It cannot have services.
"""

image_argument = click.argument("image", required=False, shell_complete=completed("images"))


@click.command("run", help=_RUN_HELP, cls=WordsOfAnother)
@image_argument
@command_argument
@placement_options
@machine_options
@click.option("-d", "--detach", is_flag=True, help="Print the id and do not wait until the machine runs.")
@click.option("--attach", is_flag=True, help="Print its output, exit with its status, stop it with Ctrl-C.")
@click.option("-i", "--interactive", is_flag=True, help="Be its input too: this terminal, or what is piped here.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal; with -i, yours.")
@click.option("--skip-launch", is_flag=True, help="Prepare the machine and leave it stopped.")
@count_options
@within_option
@output_option
@click.pass_context
def run_command(
    ctx: click.Context,
    image: str | None,
    arguments: tuple[str, ...],
    placement: PlacementOptions,
    flags: Flags,
    detach: bool,
    attach: bool,
    interactive: bool,
    tty: bool,
    skip_launch: bool,
    count: Count,
    within_s: float,
    form: Form,
) -> int | None:
    stays = attach or ((interactive or tty) and not (detach or skip_launch or count.count is not None))
    if count.count is not None and attach:
        raise click.UsageError("--attach and --count exclude each other: --attach follows one machine")
    if attach and (detach or skip_launch):
        raise click.UsageError("--attach excludes --detach and --skip-launch: it follows the machine")
    config = with_streams(ordered_config(image, arguments, flags), stdin=interactive, tty=tty)
    if stays or flags.rm:
        config = one_off(config)
    if stays:
        sitting = attaching.own_sitting(stdin=True, terminal=tty) if interactive else None
        return talk(ctx, lambda caller: _attached(caller, order_for(config, placement, flags), sitting))
    order = order_for(config, placement, flags, skip_launch=skip_launch)
    if count.count is not None:
        waits_s = None if detach or skip_launch else within_s
        return show_placed(talk(ctx, lambda caller: filled(caller, order, count, waits_s, SystemClock())), form)
    if detach or skip_launch:
        show(talk(ctx, lambda caller: ordering.place(caller, order)), form, _id)
    else:
        clock = SystemClock()

        async def run(caller: Caller) -> tuple[Machine, tuple[PublishedPortState, ...]]:
            machine = await ordering.start(caller, order, clock, within_s)
            params = MachineParams(app_name=order.app_name, machine_id=machine.id)
            return machine, await published(caller, params, machine.config, clock)

        machine, ports = talk(ctx, run)
        show(machine, form, lambda machine: started(order.app_name, machine, addresses(ports)))
    return None


@click.command("create", help=_CREATE_HELP, cls=WordsOfAnother)
@image_argument
@command_argument
@placement_options
@machine_options
@click.option(
    "--standby-for", "watched", metavar="MACHINE", multiple=True, shell_complete=complete_machine,
    help="Start it when this machine's node is lost; may be repeated.",
)  # fmt: skip
@output_option
@click.pass_context
def create(
    ctx: click.Context,
    image: str | None,
    arguments: tuple[str, ...],
    placement: PlacementOptions,
    flags: Flags,
    watched: tuple[str, ...],
    form: Form,
) -> None:
    config = ordered_config(image, arguments, flags)

    async def ordered(caller: Caller) -> Machine:
        found = [(await find_machine(caller, each, placement.app)).machine.id for each in watched]
        spare = msgspec.structs.replace(config, standbys=tuple(found)) if found else config
        return await ordering.place(caller, order_for(spare, placement, flags, skip_launch=True))

    show(talk(ctx, ordered), form, _id)


def ordered_config(image: str | None, arguments: tuple[str, ...], flags: Flags) -> MachineConfig:
    config = configured(MachineConfig(), flags, sources(), image=image, command=arguments)
    if not config.image and not config.containers:
        raise click.UsageError("no image: give it as an argument, or in the file of --config")
    warn(config)
    return config


def with_streams(config: MachineConfig, *, stdin: bool, tty: bool) -> MachineConfig:
    """Whose process has an open input, or a terminal."""
    if not (stdin or tty):
        return config
    init = config.init or Init()
    streams = msgspec.structs.replace(init, stdin=stdin or init.stdin, tty=tty or init.tty)
    return msgspec.structs.replace(config, init=streams)


def order_for(
    config: MachineConfig, placement: PlacementOptions, flags: Flags, *, skip_launch: bool = False
) -> ClientOrder:
    request = CreateMachineRequest(
        config=placement.within(config), name=placement.name, region=placement.region, skip_launch=skip_launch or None
    )
    return ClientOrder(app=placement.app, request=request, files=flags.file, order_id=placement.order_id)


async def _attached(caller: Caller, order: ClientOrder, sitting: "attaching.Sitting | None") -> int:
    """A machine that shall go when it ends is destroyed from here, once its last words were read: with the machine
    goes its output."""
    config = order.request.config
    request = msgspec.structs.replace(order.request, config=msgspec.structs.replace(config, auto_destroy=None))
    order = replace(order, request=request)
    machine = await ordering.place(caller, order)
    params = MachineParams(app_name=order.app_name, machine_id=machine.id)
    if sitting is None:
        stayed, back = attaching.stay(caller, params, machine.version, SystemClock()), "logs -f"
    else:
        stayed, back = attaching.sit(caller, params, machine.version, sitting, SystemClock()), "attach"
    if not config.auto_destroy:
        return await stayed
    return await attaching.to_its_end(caller, params, stayed, SystemClock(), back)


def _id(machine: Machine) -> str:
    return machine.id


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
def clone_command(
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
