"""`hawker machine status`, `ps`, `stats`, `events`, `versions` and `history`: what there is to know about a machine."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

import anyio
import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.exec import LIST_PROCESSES, MACHINE_STATS, MachineStats, ProcessStat
from hawker.api.contract.machine import (
    GET_MACHINE,
    LIST_EVENTS,
    LIST_VERSIONS,
    GetMachineQuery,
    ListEventsQuery,
    ListMachinesQuery,
    Machine,
    MachineEvent,
    MachineVersion,
)
from hawker.api.contract.port import PublishedPortState
from hawker.api.contract.run import (
    GET_RUN,
    LIST_RUNS,
    MACHINE_HISTORY,
    HistoryParams,
    ListRunsQuery,
    MachineHistory,
    Run,
    RunParams,
)
from hawker.cli.connect import talk
from hawker.cli.history import steps, told
from hawker.cli.machines import Owned, complete_machine, find_machine, list_machines
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, as_json, line_of_json, note, output_option, show, size, table
from hawker.cli.publishing import published_now, where
from hawker.cli.summary import events, status
from hawker.clock import SystemClock
from hawker.config.effective import guest
from hawker.errors import Forbidden, NotFound, WrongState
from hawker.machine import State
from hawker.value_object import ValueObject


class SeenMachine(ValueObject, frozen=True):
    owned: Owned
    run: Run | None
    ports: tuple[PublishedPortState, ...]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The same as JSON."""

    app: str
    """The name of the app that it is of."""
    machine: Machine
    last_run: Run | None


@click.command("status")
@machine_argument
@app_option
@output_option
@click.pass_context
def status_command(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """Show a machine: its checks, its latest events, and the steps of its last run."""
    seen = talk(ctx, lambda caller: look(caller, machine, app))
    if form is Form.JSON:
        click.echo(as_json(Shown(app=seen.owned.app, machine=seen.owned.machine, last_run=seen.run)))
        return
    click.echo(status(seen.owned, where(seen.ports)))
    if seen.run is not None:
        click.echo(f"\n{steps(seen.run)}")


async def look(caller: Caller, reference: str, app: str | None) -> SeenMachine:
    found = await find_machine(caller, reference, app)
    machine = await caller.call(GET_MACHINE, params=found.params, query=GetMachineQuery(include_leases=True))
    ports = await published_now(caller, found.params, machine.config)
    return SeenMachine(Owned(found.app, machine), await last_run(caller, machine.id), ports)


async def last_run(caller: Caller, machine_id: str) -> Run | None:
    """None also for a token that does not see the node's runs."""
    try:
        runs = await caller.call(LIST_RUNS, query=ListRunsQuery(resource_id=machine_id, limit=1))
    except Forbidden:
        return None
    if not runs.runs:
        return None
    return await caller.call(GET_RUN, params=RunParams(run_id=runs.runs[0].id))


@click.command("ps")
@machine_argument
@app_option
@output_option
@click.pass_context
def ps_command(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """List the processes in a machine."""
    show(talk(ctx, lambda caller: _processes(caller, machine, app)), form, processes_table)


async def _processes(caller: Caller, reference: str, app: str | None) -> tuple[ProcessStat, ...]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_PROCESSES, params=found.params)


def processes_table(processes: Sequence[ProcessStat]) -> str:
    """With the containers' names where there are any."""
    contained = any(process.container for process in processes)
    headings = ("PID", *(("CONTAINER",) if contained else ()), "CPU", "MEMORY", "SINCE", "LISTENS", "COMMAND")
    rows = (
        (
            process.pid,
            *((process.container,) if contained else ()),
            f"{process.cpu} %",
            size(process.rss),
            f"{process.rtime} s",
            " ".join(f"{socket.proto}:{socket.address}" for socket in process.listen_sockets),
            process.command,
        )
        for process in processes
    )
    return table(headings, rows)


_BETWEEN_S = 1.0
_AT_ONCE = 16
_CLEAR = "\x1b[H\x1b[2J"

_HELP = """Show what machines use: of those that are named, or of all that run.

CPU is of one cpu, over the last second; HELD is the part of that second for which the machine had to wait at its cpu
limit. MEMORY leaves out files' pages that can be dropped; KILLS counts processes that the memory limit ended. NETWORK
and DISK are in and out, since the start. A dash: this driver does not count it.
"""


class MachineUse(msgspec.Struct, frozen=True, kw_only=True):
    """Two looks at a machine as one line. `cpu_percent` is of one cpu."""

    app: str
    """The name of the app that it is of."""
    machine: str
    """Its id."""
    name: str
    """As a list shows it."""
    cpu_percent: float
    throttled_percent: float | None
    """Of the time between the looks, how much it was held back at its limit of cpu; null where that is not counted."""
    stats: MachineStats


@click.command("stats", help=_HELP)
@click.argument("machines", metavar="[MACHINE]...", nargs=-1, shell_complete=complete_machine)
@app_option
@click.option("-f", "--follow", is_flag=True, help="Go on, every second.")
@output_option
@click.pass_context
def stats_command(ctx: click.Context, machines: tuple[str, ...], app: str | None, follow: bool, form: Form) -> None:
    if follow:
        talk(ctx, lambda caller: _follow(caller, machines, app, form))
    else:
        show(talk(ctx, lambda caller: _once(caller, machines, app)), form, usage_table)


async def _once(caller: Caller, references: Sequence[str], app: str | None) -> tuple[MachineUse, ...]:
    chosen = await _chosen(caller, references, app)
    before = await _looks(caller, chosen)
    await SystemClock().sleep(_BETWEEN_S)
    return usages(chosen, before, await _looks(caller, chosen))


async def _follow(caller: Caller, references: Sequence[str], app: str | None, form: Form) -> None:
    """What is listed is looked up again each time, unless it was named."""
    chosen = await _chosen(caller, references, app)
    before = await _looks(caller, chosen)
    while True:
        await SystemClock().sleep(_BETWEEN_S)
        chosen = chosen if references else await _chosen(caller, references, app)
        after = await _looks(caller, chosen)
        found = usages(chosen, before, after)
        if form is Form.TABLE:
            click.echo(_CLEAR + usage_table(found))
        else:
            click.echo(line_of_json(found))
        before = after


async def _chosen(caller: Caller, references: Sequence[str], app: str | None) -> list[Owned]:
    if references:
        return [await find_machine(caller, each, app) for each in references]
    found = await list_machines(caller, app, ListMachinesQuery(state=(State.STARTED,), summary=True))
    return [owned for owned in found if owned.machine.host_status == "ok"]  # of one that is away there are no figures


async def _looks(caller: Caller, chosen: Sequence[Owned]) -> dict[str, MachineStats]:
    """By the machine's id; of one that ended meanwhile there is none."""
    found: dict[str, MachineStats] = {}

    async def look(owned: Owned) -> None:
        with suppress(NotFound, WrongState):
            found[owned.machine.id] = await caller.call(MACHINE_STATS, params=owned.params)

    for at in range(0, len(chosen), _AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for owned in chosen[at : at + _AT_ONCE]:
                tasks.start_soon(look, owned)
    return found


def usages(
    chosen: Iterable[Owned], before: dict[str, MachineStats], after: dict[str, MachineStats]
) -> tuple[MachineUse, ...]:
    """Of those that were seen twice."""
    return tuple(
        _usage(owned, before[owned.machine.id], after[owned.machine.id])
        for owned in chosen
        if owned.machine.id in before and owned.machine.id in after
    )


def _usage(owned: Owned, before: MachineStats, after: MachineStats) -> MachineUse:
    passed_s = max(0.001, (after.at - before.at).total_seconds())
    held_s = None
    if before.throttled_seconds is not None and after.throttled_seconds is not None:
        held_s = after.throttled_seconds - before.throttled_seconds
    return MachineUse(
        app=owned.app,
        machine=owned.machine.id,
        name=owned.machine.name,
        cpu_percent=max(0.0, 100 * (after.cpu_seconds - before.cpu_seconds) / passed_s),
        throttled_percent=None if held_s is None else max(0.0, 100 * held_s / passed_s),
        stats=after,
    )


def usage_table(found: Sequence[MachineUse]) -> str:
    if not found:
        note("no machine runs")
    headings = ("NAME", "CPU", "HELD", "MEMORY", "LIMIT", "PIDS", "KILLS", "NETWORK", "DISK")
    return table(headings, (_row(each) for each in found))


def _row(usage: MachineUse) -> tuple[object, ...]:
    stats = usage.stats
    memory = stats.memory_bytes if stats.working_set_bytes is None else stats.working_set_bytes
    held = usage.throttled_percent
    return (
        usage.name,
        f"{usage.cpu_percent:.1f}%",
        None if held is None else f"{held:.0f}%",
        _short(memory),
        _short(stats.memory_limit_bytes),
        stats.pids,
        None if stats.oom_kills is None else str(stats.oom_kills),
        _both(stats.network_received_bytes, stats.network_sent_bytes),
        _both(stats.disk_read_bytes, stats.disk_written_bytes),
    )


def _both(into: int | None, out: int | None) -> str | None:
    return None if into is None or out is None else f"{_short(into)}/{_short(out)}"


def _short(count: int | None) -> str | None:
    """ "3.4M": a column has little room."""
    return None if count is None else size(count).replace(" ", "").removesuffix("iB").removesuffix("B")


@click.command("events")
@machine_argument
@app_option
@click.option("-n", "--limit", type=click.IntRange(1, 50), default=20, show_default=True, help="How many events.")
@output_option
@click.pass_context
def events_command(ctx: click.Context, machine: str, app: str | None, limit: int, form: Form) -> None:
    """What happened to a machine, newest first."""
    show(talk(ctx, lambda caller: _events(caller, machine, app, limit)), form, events)


async def _events(caller: Caller, reference: str, app: str | None, limit: int) -> tuple[MachineEvent, ...]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_EVENTS, params=found.params, query=ListEventsQuery(limit=limit))


@click.command("versions")
@machine_argument
@app_option
@output_option
@click.pass_context
def versions_command(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
    """The versions of a machine's config, newest first; -o json has them in full."""
    show(talk(ctx, lambda caller: _versions(caller, machine, app)), form, versions_table)


async def _versions(caller: Caller, reference: str, app: str | None) -> tuple[MachineVersion, ...]:
    found = await find_machine(caller, reference, app)
    return await caller.call(LIST_VERSIONS, params=found.params)


def versions_table(versions: Sequence[MachineVersion]) -> str:
    return table(("VERSION", "IMAGE", "CPUS", "MEMORY"), map(_versions_row, versions))


def _versions_row(version: MachineVersion) -> tuple[object, ...]:
    size = guest(version.user_config)
    return (version.version, version.user_config.image, f"{size.cpus} {size.cpu_kind}", f"{size.memory_mb} MiB")


_WHOLE_ID = re.compile(r"[0-9a-f]{14}")


@click.command("history")
@machine_argument
@app_option
@click.option("--runs", "with_steps", is_flag=True, help="Show every step of every run.")
@output_option
@click.pass_context
def history_command(ctx: click.Context, machine: str, app: str | None, with_steps: bool, form: Form) -> None:
    """Show the history of a machine, oldest first: its versions, events and runs; -o json has them in full.

    A destroyed machine has a history too, on the node or in the archive. For a destroyed machine, MACHINE is the whole
    id.
    """
    show(
        talk(ctx, lambda caller: _history(caller, machine, app)), form, lambda found: told(found, with_steps=with_steps)
    )


async def _history(caller: Caller, reference: str, app: str | None) -> MachineHistory:
    """A whole id is asked for as it is: nothing else is known of a machine that only the archive has."""
    if _WHOLE_ID.fullmatch(reference):
        with suppress(NotFound):
            return await caller.call(MACHINE_HISTORY, params=HistoryParams(machine_id=reference))
    found = await find_machine(caller, reference, app)
    return await caller.call(MACHINE_HISTORY, params=HistoryParams(machine_id=found.machine.id))
