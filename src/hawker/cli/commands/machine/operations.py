"""The commands that move machines between states, for several machines at once, and the one that waits for it."""

from collections.abc import Awaitable, Callable, Sequence

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import (
    DELETE_MACHINE,
    DeleteMachineQuery,
    ListMachinesQuery,
    SignalRequest,
    StopRequest,
    WaitAnswer,
    WaitState,
)
from hawker.api.contract.machine_operation import (
    CORDON_MACHINE,
    RENAME_MACHINE,
    RESTART_MACHINE,
    SIGNAL_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    SUSPEND_MACHINE,
    UNCORDON_MACHINE,
    RenameRequest,
    RestartQuery,
)
from hawker.cli import waiting
from hawker.cli.config_notation import duration
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.cli.machines import Owned, find_machine, list_machines
from hawker.cli.notation import OneOf, Written, seconds
from hawker.cli.options import app_option, machine_argument, machines_argument, wait_option, within_option
from hawker.cli.output import Form, output_option, show, show_change
from hawker.cli.several import change_each
from hawker.cli.waiting import reach
from hawker.clock import SystemClock

_HELP = """Wait until a machine is in a state, and print the state; exit status 1 after the timeout.

\b
Examples:
  hawker machine wait web
  hawker machine wait 3d8f --state stopped --state failed --timeout 1h
"""


@click.command("wait", help=_HELP)
@machine_argument
@app_option
@click.option("-s", "--state", "states", multiple=True, type=OneOf(WaitState), metavar="STATE",
              default=(WaitState.STARTED.value,), show_default=True,
              help="started, stopped, suspended, destroyed, failed or settled; any of them when repeated.",
)  # fmt: skip
@within_option
@output_option
@click.pass_context
def wait_command(
    ctx: click.Context, machine: str, app: str | None, states: tuple[WaitState, ...], within_s: float, form: Form
) -> None:
    answer = talk(ctx, lambda caller: _wait(caller, machine, app, states, within_s))
    show(answer, form, lambda answer: str(answer.state))


async def _wait(
    caller: Caller, reference: str, app: str | None, states: tuple[WaitState, ...], within_s: float
) -> WaitAnswer:
    found = await find_machine(caller, reference, app)
    return await reach(caller, found.params, states, SystemClock(), within_s)


Act = Callable[[Caller, Owned], Awaitable[object]]

_signal_option = click.option(
    "-s", "--signal", metavar="SIGNAL", help="Send this signal instead of the configured one."
)


def each(ctx: click.Context, references: Sequence[str], app: str | None, form: Form, act: Act) -> int:
    """Prints the id of each machine that `act` did."""

    async def act_on_one(caller: Caller, reference: str) -> str:
        owned = await find_machine(caller, reference, app)
        await act(caller, owned)
        return owned.machine.id

    return talk(ctx, lambda caller: change_each(references, form, lambda reference: act_on_one(caller, reference)))


@click.command("start")
@machines_argument
@app_option
@wait_option
@within_option
@output_option
@click.pass_context
def start(
    ctx: click.Context, machines: tuple[str, ...], app: str | None, wait: bool, within_s: float, form: Form
) -> int:
    """Start machines, and wait until they run. A suspended machine resumes."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(START_MACHINE, params=owned.params)
        if wait:
            await waiting.started(caller, owned.params, owned.machine.version, SystemClock(), within_s)

    return each(ctx, machines, app, form, act)


@click.command("stop")
@machines_argument
@app_option
@_signal_option
@click.option(
    "-t", "--grace", type=Written(duration, "duration"), metavar="TIME", help="How long to wait before the kill."
)
@wait_option
@within_option
@output_option
@click.pass_context
def stop(
    ctx: click.Context,
    machines: tuple[str, ...],
    app: str | None,
    signal: str | None,
    grace: str | None,
    wait: bool,
    within_s: float,
    form: Form,
) -> int:
    """Stop machines: signal, wait, kill. They can be started again."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(STOP_MACHINE, params=owned.params, body=StopRequest(signal=signal, timeout=grace))
        if wait:
            await waiting.reach(caller, owned.params, waiting.AT_REST, SystemClock(), within_s)

    return each(ctx, machines, app, form, act)


@click.command("suspend")
@machines_argument
@app_option
@wait_option
@within_option
@output_option
@click.pass_context
def suspend(
    ctx: click.Context, machines: tuple[str, ...], app: str | None, wait: bool, within_s: float, form: Form
) -> int:
    """Suspend machines: their memory, files and connections stay. `start` resumes them; `stop` ends them. They keep
    their capacity on the node."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(SUSPEND_MACHINE, params=owned.params)
        if wait:
            await waiting.reach(caller, owned.params, waiting.AT_REST, SystemClock(), within_s)

    return each(ctx, machines, app, form, act)


@click.command("restart")
@machines_argument
@app_option
@_signal_option
@click.option(
    "-t", "--grace", type=Written(seconds, "duration"), metavar="TIME", help="How long to wait before the kill."
)
@click.option("--force", is_flag=True, help="Kill it without a wait.")
@wait_option
@within_option
@output_option
@click.pass_context
def restart(
    ctx: click.Context,
    machines: tuple[str, ...],
    app: str | None,
    signal: str | None,
    grace: float | None,
    force: bool,
    wait: bool,
    within_s: float,
    form: Form,
) -> int:
    """Stop machines and start them again."""

    async def act(caller: Caller, owned: Owned) -> None:
        query = RestartQuery(signal=signal, timeout=grace, force_stop=force)
        await caller.call(RESTART_MACHINE, params=owned.params, query=query)
        if wait:
            await waiting.started(caller, owned.params, owned.machine.version, SystemClock(), within_s)

    return each(ctx, machines, app, form, act)


@click.command("kill")
@machines_argument
@app_option
@click.option("-s", "--signal", metavar="SIGNAL", default="KILL", show_default=True, help="A name or a number.")
@output_option
@click.pass_context
def kill(ctx: click.Context, machines: tuple[str, ...], app: str | None, signal: str, form: Form) -> int:
    """Send a signal to machines' processes. If they end, the restart policy decides what follows."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(SIGNAL_MACHINE, params=owned.params, body=SignalRequest(signal=signal))

    return each(ctx, machines, app, form, act)


@click.command("destroy")
@machines_argument
@app_option
@click.option("-f", "--force", is_flag=True, help="Also running machines.")
@wait_option
@within_option
@output_option
@click.pass_context
def destroy(
    ctx: click.Context, machines: tuple[str, ...], app: str | None, force: bool, wait: bool, within_s: float, form: Form
) -> int:
    """Destroy machines, with their files and addresses. Stop them first, or use --force."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(DELETE_MACHINE, params=owned.params, query=DeleteMachineQuery(force=force))
        if wait:
            await waiting.reach(caller, owned.params, (WaitState.DESTROYED,), SystemClock(), within_s)

    return each(ctx, machines, app, form, act)


@click.command("cordon")
@machines_argument
@app_option
@output_option
@click.pass_context
def cordon(ctx: click.Context, machines: tuple[str, ...], app: str | None, form: Form) -> int:
    """Take machines out of routing; they keep running."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(CORDON_MACHINE, params=owned.params)

    return each(ctx, machines, app, form, act)


@click.command("uncordon")
@machines_argument
@app_option
@output_option
@click.pass_context
def uncordon(ctx: click.Context, machines: tuple[str, ...], app: str | None, form: Form) -> int:
    """Put machines back into routing."""

    async def act(caller: Caller, owned: Owned) -> None:
        await caller.call(UNCORDON_MACHINE, params=owned.params)

    return each(ctx, machines, app, form, act)


@click.command("rename")
@machine_argument
@click.argument("name", metavar="NAME")
@app_option
@output_option
@click.pass_context
def rename(ctx: click.Context, machine: str, name: str, app: str | None, form: Form) -> None:
    """Give a machine another name, unique in its app. It runs on; what it was told of its name stays until it is
    started again."""

    async def renamed(caller: Caller) -> str:
        found = await find_machine(caller, machine, app)
        others = await list_machines(caller, found.app, ListMachinesQuery(summary=True))
        if any(each.machine.name == name and each.machine.id != found.machine.id for each in others):
            raise Failure(f"app {found.app!r} has another machine {name!r}")
        await caller.call(RENAME_MACHINE, params=found.params, body=RenameRequest(name=name))
        return found.machine.id

    changed = talk(ctx, renamed)
    show_change(form, changed, id=changed, name=name)
