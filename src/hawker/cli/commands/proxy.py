"""`hawker proxy`: a port of this computer that leads to a port of a machine, through the node's API."""

import signal
from collections.abc import Callable
from ipaddress import ip_address

import anyio
import click
import msgspec
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

from hawker.api.caller import Caller
from hawker.api.contract.machine import ListMachinesQuery, MachineParams
from hawker.api.contract.port import MACHINE_PORT, PortOpened, PortRequest
from hawker.api.relay import cut_off, relay
from hawker.cli.connect import talk
from hawker.cli.exits import Failure, say_error, text_of
from hawker.cli.machines import Owned, chosen, list_machines
from hawker.cli.notation import Written
from hawker.cli.options import app_option, completed
from hawker.cli.output import Form, line_of_json, output_option
from hawker.errors import HawkerError, NotFound, Unavailable, WrongState, leaf_of
from hawker.machine import State
from hawker.value_object import ValueObject

_HELP = """Lead a port of this computer to a port of a machine, until Ctrl-C.

Of an app each connection goes to the next of its started machines. LOCAL is this
computer's port, 0 for any free one, REMOTE the machine's; one number is both. All goes through the node's API with
your token, so nothing else of the node needs to be reachable.

\b
Examples:
  hawker proxy 5432 db                     psql -h localhost
  hawker proxy 8080:80 shop                the app's machines, in turns
  hawker proxy 0:22 -o json web            prints the port that was free
"""
_AT_ONCE = 256
"""As many connections as a node gives one token."""


class Forward(ValueObject, frozen=True):
    """Ports: of this computer, 0 for any; of the machine."""

    local: int
    """0 to 65535."""
    remote: int
    """1 to 65535."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed once connections are taken. `machine` is absent where an app is the target."""

    local: str
    """The address of this computer, and the port that it took."""
    port: int
    """Of the machine, 1 to 65535."""
    app: str
    """The name of the app."""
    machine: str | None = None


def forward_of(text: str) -> Forward:
    """`5432`, `15432:5432`. Raises `ValueError`."""
    local, colon, remote = text.partition(":")
    if not colon:
        remote = local
    if not (local.isascii() and local.isdigit() and remote.isascii() and remote.isdigit()):
        raise ValueError(f"{text!r} is not LOCAL:REMOTE or one port, such as 15432:5432")
    found = Forward(int(local), int(remote))
    if found.local > 65535 or not 1 <= found.remote <= 65535:
        raise ValueError(f"{text!r} has a port that is not from 1 to 65535")
    return found


@click.command("proxy", help=_HELP)
@click.argument("ports", metavar="LOCAL:REMOTE", type=Written(forward_of, "pair of ports"))
@click.argument("target", metavar="MACHINE|APP", shell_complete=completed("targets"))
@app_option
@click.option("-b", "--bind", "address", metavar="ADDRESS", default="127.0.0.1", show_default=True,
              help="This computer's address to listen at.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@output_option
@click.pass_context
def command(
    ctx: click.Context, ports: Forward, target: str, app: str | None, address: str, quiet: bool, form: Form
) -> None:
    def say(found: Listening) -> None:
        if not quiet:
            click.echo(line_of_json(found) if form is Form.JSON else _text(found))

    talk(ctx, lambda caller: _proxy(caller, Tunnel(caller, target, app, ports.remote), address, ports.local, say))


class Tunnel:
    """Connections to one port of what `target` names, a machine or an app."""

    def __init__(self, caller: Caller, target: str, app: str | None, port: int) -> None:
        self._caller = caller
        self._target = target
        self._app = app
        self.port = port
        self._found: list[Owned] = []
        self._of_app = ""
        self._next = 0
        self._slots = anyio.Semaphore(_AT_ONCE)

    async def find(self) -> Listening:
        """Raises `NotFound`, and `Failure` when nothing is started that could answer."""
        machines = await list_machines(self._caller, self._app, ListMachinesQuery(summary=True))
        try:
            one = chosen(machines, self._target, self._app)
        except NotFound:
            self._found = [each for each in machines if each.app == self._target and each.machine.host_status == "ok"]
            if not self._found:
                raise NotFound(f"there is no machine and no app with machines {self._target!r}") from None
            self._of_app = self._target
        else:
            self._found, self._of_app = [one], ""
        started = [owned for owned in self._found if owned.machine.state is State.STARTED]
        if not started:
            raise Failure(_asleep(self._found, self._of_app))
        self._found = started
        return Listening(
            local="", port=self.port, app=started[0].app, machine=None if self._of_app else started[0].machine.id
        )

    async def carry(self, stream: SocketStream) -> None:
        """One connection, to its end. What goes wrong is said, and resets it."""
        async with self._slots, stream:
            try:
                await self._carry(stream)
            except (HawkerError, Failure) as error:
                cut_off(stream)
                say_error(text_of(error) if isinstance(error, HawkerError) else error.message)

    async def _carry(self, stream: SocketStream) -> None:
        """Of an app that changed meanwhile, another machine is asked once: not a byte has gone anywhere."""
        try:
            await self._to(self._turn(), stream)
        except (NotFound, WrongState):
            if not self._of_app:
                raise
            await self.find()
            await self._to(self._turn(), stream)

    async def _to(self, params: MachineParams, stream: SocketStream) -> None:
        async with self._caller.socket(MACHINE_PORT, PortRequest(port=self.port), params=params) as channel:
            opened = await channel.receive()
            if not isinstance(opened, PortOpened):
                raise Unavailable("the connection to the node was lost before the machine answered")
            await relay(channel, stream)

    def _turn(self) -> MachineParams:
        self._next += 1
        return self._found[self._next % len(self._found)].params


async def _proxy(caller: Caller, tunnel: Tunnel, address: str, port: int, say: Callable[[Listening], None]) -> None:
    found = await tunnel.find()
    async with await _listener(address, port) as listener, anyio.create_task_group() as tasks:
        at = listener.extra(SocketAttribute.local_address)
        say(msgspec.structs.replace(found, local=_written(str(at[0]), int(at[1]))))
        tasks.start_soon(_until_interrupted, tasks)
        await listener.serve(tunnel.carry, tasks)


async def _listener(address: str, port: int) -> Listener[SocketStream]:
    """Raises `Failure` when the address cannot be had."""
    try:
        ip_address(address)
        group = await anyio.create_tcp_listener(local_host=address, local_port=port, reuse_port=False)
    except (OSError, ValueError) as error:
        raise Failure(f"cannot listen at {_written(address, port)}: {leaf_of(error)}") from error
    return group.listeners[0]


async def _until_interrupted(tasks: TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            tasks.cancel_scope.cancel()
            return


def _asleep(machines: list[Owned], app: str) -> str:
    if app:
        return f"no machine of app {app} is started"
    (one,) = machines
    return f"machine {one.machine.id} is {one.machine.state}: start it with `hawker machine start`"


def _written(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _text(found: Listening) -> str:
    there = f"machine {found.machine} of app {found.app}" if found.machine else f"machines of app {found.app}"
    return f"{found.local} -> port {found.port} of {there}; Ctrl-C ends it"
