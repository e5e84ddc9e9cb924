"""`hawker audit`: the audit logs of all nodes of the fleet; or with `--local` that of the node on this host, read from
its files, also while no daemon runs.
"""

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from msgspec.structs import asdict

from hawker.api.caller import Caller
from hawker.api.contract.audit import LIST_AUDIT, AuditQuery
from hawker.audit.audit_log import AuditEntry, Broken, Chain, WantedEntries, entry_of, lines
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.notation import Written, moment
from hawker.cli.options import completed
from hawker.cli.output import Form, as_json, line_of_json, local, note, output_option, table
from hawker.clock import SystemClock
from hawker.place import default_data_dir

_FOLLOW_S = 1.0
_pause = threading.Event()
_HEADINGS = ("NUMBER", "AT", "WHO", "FROM", "WHAT", "THINGS", "STATUS")
_OF_FLEET = ("HOST", *_HEADINGS)

Show = Callable[[str, bytes], None]
"""Takes the host, empty for this one's files, and a line of its log."""


class _HostLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an exported log: `entry` is exactly what `host` wrote."""

    host: str
    entry: msgspec.Raw


@click.group("audit", no_args_is_help=True)
def command() -> None:
    """Who did what in the fleet, from where, to which machine, and with which outcome.

    Any node merges what all nodes wrote, and names those that do not answer. It takes a token with control of the whole
    fleet. With --local the log of this host's node is read from DATA_DIR/audit (HAWKER_DATA_DIR), which only the node's
    own user may do. A call of control, secrets or tokens has two entries: STATUS `begins` before it was done, and its
    outcome.

    \b
    Examples:
      hawker audit list --app shop --who ci
      hawker audit list --node 3f2a9c01 -f
      hawker audit export > audit.jsonl
      hawker audit verify
      hawker audit verify audit.jsonl
    """


def _since(text: str) -> str:
    """As the log writes it; empty for empty."""
    return text and datetime.fromtimestamp(moment(text), UTC).isoformat(timespec="milliseconds")


def _filters(function: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option(
            "-a", "--app", metavar="NAME", shell_complete=completed("apps"), default="", help="Only of this app."
        ),
        click.option(
            "-m",
            "--machine",
            metavar="ID",
            shell_complete=completed("machines"),
            default="",
            help="Only of this machine.",
        ),
        click.option("--who", metavar="NAME", default="", help="Only by this holder, or by a token with this id."),
        click.option("--what", metavar="ROUTE", default="", help="Only this call, such as exec_machine."),
        click.option(
            "--since",
            type=Written(_since, "moment"),
            metavar="TIME",
            default="",
            help="Only what came after that: 90, 10m or 2h ago, or 2026-01-02T03:04:05.",
        ),
    ):
        function = option(function)
    return function


def _whose(function: click.decorators.FC) -> click.decorators.FC:
    function = click.option("--local", is_flag=True, help="Read the files of this host's node.")(function)
    return click.option(
        "--node", metavar="ID", shell_complete=completed("nodes"), default="", help="Only what this node wrote."
    )(function)


@command.command("list")
@_filters
@_whose
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@output_option
@click.pass_context
def list_entries(ctx: click.Context, /, follow: bool, form: Form, node: str, local: bool, **selected: str) -> None:
    """List the entries, the oldest first."""
    rows = list[tuple[str, ...]]()
    headed = False

    def show(host: str, line: bytes) -> None:
        if form is Form.JSON:
            click.echo(line_of_json(_exported(host, line) if host else entry_of(line)))
            return
        row = _row(entry_of(line))
        row = (host, *row) if host else row
        if headed:
            click.echo("  ".join(row))
        else:
            rows.append(row)

    def caught_up() -> None:
        nonlocal headed
        if form is Form.TABLE and not headed:
            click.echo(table(_HEADINGS if local else _OF_FLEET, rows, prose=("WHAT", "THINGS")))
        headed = True

    _read(ctx, WantedEntries(**selected), node, show, local=local, follow=follow, caught_up=caught_up)


@command.command("export")
@_filters
@_whose
@click.pass_context
def export_entries(ctx: click.Context, /, node: str, local: bool, **selected: str) -> None:
    """Print the entries as lines of JSON. They are exactly as in the logs. Only the whole log can be verified."""

    def show(host: str, line: bytes) -> None:
        click.echo(line_of_json(_exported(host, line)) if host else line.rstrip(b"\n"))

    _read(ctx, WantedEntries(**selected), node, show, local=local)


@command.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@_whose
@output_option
@click.pass_context
def verify_chain(ctx: click.Context, /, file: Path | None, node: str, local: bool, form: Form) -> None:
    """Check the chain of every node's log, or of an exported FILE. Exit status 1 where one breaks."""
    chains, faults = dict[str, Chain](), dict[str, Broken]()

    def show(host: str, line: bytes) -> None:
        if (found := chains.setdefault(host, Chain()).check(line)) is not None:
            faults.setdefault(host, found)

    if file is not None:
        with file.open("rb") as exported:
            for line in exported:
                show(*_imported(line))
    else:
        _read(ctx, WantedEntries(), node, show, local=local)
    if not chains:
        note("the log has no entries")
    if form is Form.JSON:
        click.echo(as_json([_judged(host, chain, faults.get(host)) for host, chain in sorted(chains.items())]))
    for host, chain in sorted(chains.items()) if form is Form.TABLE else ():
        if host not in faults and chain.last is not None:
            held = f"{chain.entries} entries, {chain.first} to {chain.last.number}"
            click.echo(f"{_prefix(host)}{held}: the chain holds; the last hash is {chain.last.hash}")
    if faults:
        raise Failure("; ".join(_prefix(host) + str(found) for host, found in faults.items()), ExitStatus.FAILED)


def _judged(host: str, chain: Chain, fault: Broken | None) -> dict[str, object]:
    """Of one log, as JSON: `host` is empty for the log of this host, `hash` is the last line's."""
    last = chain.last
    held = {"entries": chain.entries, "first": chain.first, "last": last and last.number, "hash": last and last.hash}
    return {"host": host, **held, "fault": str(fault) if fault else None}


def _prefix(host: str) -> str:
    return f"{host}: " if host else ""


def _read(
    ctx: click.Context,
    selection: WantedEntries,
    node: str,
    show: Show,
    *,
    local: bool,
    follow: bool = False,
    caught_up: Callable[[], None] = lambda: None,
) -> None:
    """Raises `Failure` in the end when a chain is broken, or a host did not answer."""
    if local:
        if node:
            raise click.UsageError("--local is the node of this host: leave out --node")
        return _read_local(selection, show, caught_up, follow=follow)
    query = AuditQuery(node=node, **asdict(selection))
    talk(ctx, lambda caller: _read_fleet(caller, query, show, caught_up, follow=follow))


def _read_local(selection: WantedEntries, show: Show, caught_up: Callable[[], None], *, follow: bool) -> None:
    """All that is there, also lines that are no entries; then those with higher numbers."""
    last, shown = 0, -1
    while True:
        for line in lines(_directory()):
            entry = entry_of(line)
            if entry.number > shown and entry in selection:
                show("", line)
            last = max(last, entry.number)
        shown = last
        caught_up()
        if not follow:
            return
        _pause.wait(_FOLLOW_S)


async def _read_fleet(
    caller: Caller, query: AuditQuery, show: Show, caught_up: Callable[[], None], *, follow: bool
) -> None:
    clock, faults, away = SystemClock(), list[str](), tuple[str, ...]()
    while True:
        page = await caller.call(LIST_AUDIT, query=query)
        for line in page.lines:
            show(line.host, line.entry.encode() + b"\n")
        for fault in page.broken:
            note(f"the chain breaks at {fault}")
        for host in page.away:
            if host not in away:
                note(f"{host} does not answer: its entries are missing")
        faults, away = [*faults, *page.broken][:3], page.away
        if not page.more:
            caught_up()
            if not follow:
                break
            await clock.sleep(_FOLLOW_S)
        query = msgspec.structs.replace(query, after=page.next)
    if faults:
        raise Failure("the chain breaks at " + "; ".join(faults), ExitStatus.FAILED)
    if away:
        raise Failure(f"{', '.join(away)}: no answer, so this is not all", ExitStatus.UNAVAILABLE)


def _exported(host: str, line: bytes) -> _HostLine:
    """A line that is no JSON is exported as a string, and does not hold."""
    try:
        msgspec.json.decode(line)
    except ValueError:
        line = msgspec.json.encode(line.decode(errors="replace"))
    return _HostLine(host=host, entry=msgspec.Raw(line.rstrip(b"\n")))


def _imported(line: bytes) -> tuple[str, bytes]:
    """Of an export of the fleet, or of one host."""
    try:
        found = msgspec.json.decode(line, type=_HostLine)
    except ValueError:
        return "", line
    return found.host, bytes(found.entry)


def _directory() -> Path:
    directory = Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir()) / "audit"
    try:
        next(directory.iterdir(), None)
    except OSError as error:
        raise Failure(f"cannot read {directory}: {error.strerror}; set HAWKER_DATA_DIR") from error
    return directory


def _at(entry: AuditEntry) -> str:
    """As other tables have moments; an entry that somebody damaged may have none."""
    try:
        return local(datetime.fromisoformat(entry.at))
    except ValueError:
        return entry.at


def _row(entry: AuditEntry) -> tuple[str, ...]:
    things = " ".join(f"{name}={value}" for name, value in entry.things.items())
    origin = " by node ".join(part for part in (entry.source, entry.node) if part)
    status = str(entry.status) if entry.status else "begins"
    return (str(entry.number), _at(entry), entry.who, origin, entry.what, things, status)
