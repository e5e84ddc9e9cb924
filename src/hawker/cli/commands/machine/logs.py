"""`hawker machine logs`: the bytes that machines wrote, to the streams that they wrote them to."""

from collections.abc import Sequence
from functools import partial

import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app_log import LogLine
from hawker.api.contract.machine import ListMachinesQuery
from hawker.api.contract.node import LogChunk
from hawker.cli.connect import talk
from hawker.cli.lazy import found
from hawker.cli.log_stream import (
    AppLogFollower,
    Follower,
    LinePrinter,
    Prefix,
    WantedLines,
    WantedOutput,
    Write,
    follow_all,
    print_merged,
)
from hawker.cli.machines import Owned, complete_machine, find_machine, list_machines
from hawker.cli.notation import Written, moment
from hawker.cli.options import app_option, completed
from hawker.cli.output import Form, line_of_json, output_option

_HELP = """Print the output of machines: what they wrote to stdout on stdout, the rest on stderr. With --app and no
MACHINE, or in the folder of a fly.toml, the log of the app: that of all its machines, on whichever hosts, also of those
that are gone, and what the nodes did with them, on stderr.

\b
Examples:
  hawker logs -f web
  hawker logs -t --since 10m web db
  hawker logs -a shop -n 20 -f
  hawker logs -a shop --since 1h --deploy 12

Output of several machines is in the order of time, each line with its machine's name; lines of a machine with several
containers begin with the container's. An app's log is kept for a day or 256 MiB on each node, unless the node's
settings say otherwise. With -f, a node that restarts is waited for, and each line comes once. With -o json each piece
is one line, with its time, its stream and its bytes in base64; each line of an app's log one with its text.
"""


class NamedChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one of several machines' output, as JSON."""

    app: str
    """The name of the app that it is of."""
    machine: str
    """Its id."""
    name: str
    """As a list shows it."""
    chunk: LogChunk


@click.command("logs", help=_HELP)
@click.argument("machines", metavar="[MACHINE]...", nargs=-1, shell_complete=complete_machine)
@app_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the machine is destroyed.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each machine.")
@click.option("-t", "--timestamps", is_flag=True, help="Begin each line with its time, in UTC.")
@click.option("--since", "since_at", type=Written(moment, "moment"), metavar="TIME",
              help="Only what came after that: 90, 10m or 2h ago, or 2026-01-02T03:04:05.")  # fmt: skip
@click.option(
    "-r",
    "--region",
    metavar="REGION",
    shell_complete=completed("regions"),
    default="",
    help="Of an app: only what is in this region.",
)
@click.option("--deploy", metavar="N", default="", help="Of an app: only machines of its release N.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    machines: tuple[str, ...],
    app: str | None,
    follow: bool,
    lines: int | None,
    timestamps: bool,
    since_at: float | None,
    region: str,
    deploy: str,
    form: Form,
) -> None:
    app = app or (None if machines else found("hawker.cli.fly_file", "app_here")())
    if not machines and app is None:
        raise click.UsageError("name a MACHINE, or an app with --app for the output of all its machines")
    if machines and (region or deploy):
        raise click.UsageError("--region and --deploy select from an app's log: leave out MACHINE")
    if not machines and app is not None:
        lines_of_app = WantedLines(follow=follow, tail=lines, since=since_at, region=region, release=deploy)
        return talk(ctx, lambda caller: _print_log(caller, app, lines_of_app, form, timestamps=timestamps))
    wanted, prefix = WantedOutput(follow=follow, tail=lines, since=since_at), Prefix(timestamps=timestamps)
    talk(ctx, lambda caller: _print(caller, machines, app, wanted, prefix, form))


async def _print(
    caller: Caller, references: Sequence[str], app: str | None, wanted: WantedOutput, prefix: Prefix, form: Form
) -> None:
    chosen = [await find_machine(caller, each, app) for each in references]
    if len(references) == 1:
        follower = Follower(caller, chosen[0].params, None if form is Form.TABLE else _write_json, prefix=prefix)
        if wanted.follow:
            return await follower.follow(wanted)
        return await follower.print(follow=False, tail=wanted.tail, since=wanted.since)
    width = max((len(each.machine.name) for each in chosen), default=0)
    followers = [
        Follower(caller, each.params, _writer(each, form), prefix=prefix, name=each.machine.name.ljust(width))
        for each in chosen
    ]
    await print_merged(followers, wanted)
    if wanted.follow:
        await follow_all(followers)


async def _print_log(caller: Caller, app: str, wanted: WantedLines, form: Form, *, timestamps: bool) -> None:
    names = dict[str, str]()
    if form is Form.TABLE:
        there = await list_machines(caller, app, ListMachinesQuery(summary=True))
        names = {each.machine.id: each.machine.name for each in there}
    write = LinePrinter(names, timestamps=timestamps) if form is Form.TABLE else _write_line
    await AppLogFollower(caller, app, write).print(wanted)


def _write_line(line: LogLine) -> None:
    click.echo(line_of_json(line))


def _writer(owned: Owned, form: Form) -> Write | None:
    return None if form is Form.TABLE else partial(_write_named, owned)


def _write_json(chunk: LogChunk) -> None:
    click.echo(line_of_json(chunk))


def _write_named(owned: Owned, chunk: LogChunk) -> None:
    named = NamedChunk(app=owned.app, machine=owned.machine.id, name=owned.machine.name, chunk=chunk)
    click.echo(line_of_json(named))
