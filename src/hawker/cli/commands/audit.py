"""`hawker audit`: the audit log of the node on this host, read from its files, also while no daemon runs."""

import os
import threading
from pathlib import Path

import click

from hawker.audit.audit_log import lines
from hawker.audit.chain import AuditEntry, broken, read_line
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import Form, line_of_json, note, output_option, table
from hawker.place import default_data_dir

_FOLLOW_S = 0.5
_pause = threading.Event()
_HEADINGS = ("NUMBER", "AT", "WHO", "FROM", "WHAT", "THINGS", "STATUS")


@click.group("audit", no_args_is_help=True)
def command() -> None:
    """Who did what on this node, from where, to which machine, and with which outcome.

    The log is in DATA_DIR/audit (HAWKER_DATA_DIR), which only the node's own user may read. A call of control, secrets
    or tokens has two entries: STATUS `begins` before it was done, and its outcome.

    \b
    Examples:
      hawker audit list --app shop --who ci
      hawker audit list -f
      hawker audit export > audit.jsonl
      hawker audit verify
      hawker audit verify audit.jsonl
    """


def _filters(function: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("-a", "--app", metavar="NAME", help="Only of this app."),
        click.option("-m", "--machine", metavar="ID", help="Only of this machine."),
        click.option("--who", metavar="NAME", help="Only by this holder, or by a token with this id."),
        click.option("--what", metavar="ROUTE", help="Only this call, such as exec_machine."),
        click.option("--since", metavar="TIME", help="Only from this moment, as 2026-11-23T05:00."),
    ):
        function = option(function)
    return function


@command.command("list")
@_filters
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@output_option
def list_entries(follow: bool, form: Form, **wanted: str | None) -> None:
    """List the entries, the oldest first."""
    found = [entry for line in lines(_directory()) if _wanted(entry := _read(line), wanted)]
    if form is Form.TABLE:
        click.echo(table(_HEADINGS, map(_row, found)))
    else:
        _print(found)
    last = found[-1].number if found else 0
    while follow:
        _pause.wait(_FOLLOW_S)
        new = [entry for line in lines(_directory()) if (entry := _read(line)).number > last and _wanted(entry, wanted)]
        if form is Form.JSON:
            _print(new)
        elif new:
            click.echo("\n".join("  ".join(_row(entry)) for entry in new))
        last = new[-1].number if new else last


@command.command("export")
@_filters
def export_entries(**wanted: str | None) -> None:
    """Print the entries as lines of JSON, exactly as they are in the log. Only the whole log can be verified."""
    for line in lines(_directory()):
        if _wanted(_read(line), wanted):
            click.echo(line.rstrip(b"\n"))


@command.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
def verify_chain(file: Path | None) -> None:
    """Check the chain of the log, or of an exported FILE, and say where it breaks. The exit status is 1 then."""
    held = list(file.read_bytes().splitlines(keepends=True) if file else lines(_directory()))
    found = broken(held)
    if found is not None:
        which = "" if found.number is None else f", entry {found.number}"
        raise Failure(f"the chain breaks at line {found.line}{which}: {found.why}", ExitStatus.FAILED)
    if not held:
        note("the log has no entries")
        return
    first, last = _read(held[0]), _read(held[-1])
    click.echo(f"{len(held)} entries, {first.number} to {last.number}: the chain holds; the last hash is {last.hash}")


def _directory() -> Path:
    directory = Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir()) / "audit"
    try:
        next(directory.iterdir(), None)
    except OSError as error:
        raise Failure(f"cannot read {directory}: {error.strerror}; set HAWKER_DATA_DIR") from error
    return directory


def _read(line: bytes) -> AuditEntry:
    try:
        return read_line(line)
    except ValueError:
        return AuditEntry(number=0, at="", what="(no entry: see `hawker audit verify`)")


def _wanted(entry: AuditEntry, wanted: dict[str, str | None]) -> bool:
    things = entry.things
    checks = (
        (wanted["app"], things.get("app_name") == wanted["app"]),
        (wanted["machine"], things.get("machine_id") == wanted["machine"]),
        (wanted["who"], entry.who == wanted["who"] or wanted["who"] in entry.tokens),
        (wanted["what"], entry.what == wanted["what"]),
        (wanted["since"], entry.at >= (wanted["since"] or "")),
    )
    return all(fits for asked, fits in checks if asked is not None)


def _print(entries: list[AuditEntry]) -> None:
    for entry in entries:
        click.echo(line_of_json(entry))


def _row(entry: AuditEntry) -> tuple[str, ...]:
    things = " ".join(f"{name}={value}" for name, value in entry.things.items())
    origin = " by node ".join(part for part in (entry.source, entry.node) if part)
    status = str(entry.status) if entry.status else "begins"
    return (str(entry.number), entry.at, entry.who, origin, entry.what, things, status)
