"""`hawker machine ps`."""

from collections.abc import Sequence

import click

from hawker.api.caller import Caller
from hawker.api.contract.exec import LIST_PROCESSES, ProcessStat
from hawker.cli.connect import talk
from hawker.cli.machines import find_machine
from hawker.cli.options import app_option, machine_argument
from hawker.cli.output import Form, output_option, show, size, table


@click.command("ps")
@machine_argument
@app_option
@output_option
@click.pass_context
def command(ctx: click.Context, machine: str, app: str | None, form: Form) -> None:
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
