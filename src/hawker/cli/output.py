"""What a command answers with: JSON for programs or text for people, on stdout. Everything else goes to stderr.

click is imported by who adds an option or writes a note: a plain list of machines is printed without it.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hawker.cli.entry import columns
from hawker.deferred import deferred
from hawker.machine import State

if TYPE_CHECKING:
    import textwrap

    import click

    from hawker.cli import notation
else:
    click = deferred("click")
    textwrap = deferred("textwrap")
    notation = deferred("hawker.cli.notation")

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    WIDE = "wide"  # a table that may be wider than 80 columns


def output_option(command: C) -> C:
    """Adds `--output`, passed on as `form`."""
    return _option(command, "For people or for programs.", (Form.TABLE, Form.JSON))


def wide_output_option(command: C) -> C:
    """The same for a table that leaves out columns, which `wide` shows."""
    return _option(command, "For people or for programs; wide shows all columns.", tuple(Form))


def _option(command: C, text: str, forms: Sequence[Form]) -> C:
    return click.option(
        "-o",
        "--output",
        "form",
        type=notation.OneOf(Form, forms),
        default=Form.TABLE.value,
        show_default=True,
        help=text,
    )(command)


def show(value: T, form: Form, text: Callable[[T], str]) -> None:
    click.echo(as_json(value) if form is Form.JSON else text(value))


def show_change(form: Form, text: str | None, **changed: object) -> None:
    """What a command that answers with nothing has changed: `changed` as one JSON object, or `text`, if any."""
    if form is Form.JSON:
        click.echo(as_json(changed))
    elif text is not None:
        click.echo(text)


def as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def line_of_json(value: object) -> str:
    """For streams: one value a line."""
    return msgspec.json.encode(value).decode()


def note(text: str) -> None:
    """For the person who waits, not for a program."""
    click.echo(text, err=True)


# Rows and fields as aligned text, without frames: read by people, and by `awk` all the same.

_GAP = "  "
_LEAST = 6  # of a column that is cut
_MOMENT = re.compile(r"\d{4}-(\d\d-\d\d \d\d:\d\d:\d\d)")
_MOMENT_LEAST = 14  # "11-25 22:41:07": a moment is cut from its beginning
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_STYLE = re.compile(r"\x1b\[\d+m")
_BOLD, _RED, _GREEN, _YELLOW = 1, 31, 32, 33
_COLOURS = {
    State.STARTED: _GREEN,
    State.STOPPED: _YELLOW,
    State.SUSPENDED: _YELLOW,
    State.FAILED: _RED,
    State.LAUNCH_FAILED: _RED,
    "passing": _GREEN,
    "critical": _RED,
    "warning": _YELLOW,
    "done": _GREEN,
    "failed": _RED,
    "stuck": _RED,
}


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, prose: Collection[str] = ()) -> str:
    """Columns as wide as their widest cell. On a terminal that is narrower than that, the widest are cut, with an
    ellipsis, but for the first one, which is what commands take, and for all with `-o wide`. `prose` are the headings
    of columns of sentences: these go on in the next line instead."""
    cells = [list(headings), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    least = [_least([row[column] for row in cells]) for column in range(len(headings))]
    fit(widths, least, _room())
    wrapped = {column for column, heading in enumerate(headings) if heading in prose}
    head, *body = (_line(line, widths) for row in cells for line in _lines(row, widths, wrapped))
    return "\n".join([_styled(head, _BOLD), *body])


def _lines(row: Sequence[str], widths: Sequence[int], wrapped: Collection[int]) -> Iterable[Sequence[str]]:
    """One row; more than one line where a sentence is wider than its column."""
    if all(len(row[column]) <= widths[column] for column in wrapped):
        return (row,)
    cells = (
        textwrap.wrap(cell, widths[column]) if column in wrapped and len(cell) > widths[column] else [cell]
        for column, cell in enumerate(row)
    )
    return zip_longest(*cells, fillvalue="")


def _least(cells: Sequence[str]) -> int:
    """How narrow a column may be, by its heading and its cells."""
    heading, *below = cells
    return max(len(heading), _MOMENT_LEAST if any(map(_MOMENT.fullmatch, below)) else _LEAST)


def fit(widths: list[int], least: Sequence[int], room: int | None) -> None:
    """Take from the widest columns, but for the first one, until a line has room, or all are as narrow as may be."""
    while room is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > room:
        cuttable = [column for column in range(1, len(widths)) if widths[column] > least[column]]
        if not cuttable:
            return
        widths[max(cuttable, key=lambda column: widths[column])] -= 1


def _room() -> int | None:
    """The width of the terminal that reads the answer; None for a file or a pipe, and where all is asked for."""
    return None if not sys.stdout.isatty() or _wide() else columns()


def _wide() -> bool:
    """Whether the command was given `-o wide`; a list that is printed without click was not."""
    context = click.get_current_context(silent=True) if "click" in sys.modules else None
    return context is not None and context.params.get("form") is Form.WIDE


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """One name and value a line; those without a value are left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:{width}}{_GAP}{_coloured(value)}" for name, value in shown)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cut = (cell if len(cell) <= width else _cut(cell, width) for cell, width in zip(row, widths, strict=True))
    padded = (f"{_coloured(cell)}{' ' * (width - len(cell))}" for cell, width in zip(cut, widths, strict=True))
    return _GAP.join(padded).rstrip()


def _cut(cell: str, width: int) -> str:
    moment_of_day = _MOMENT.fullmatch(cell)
    return moment_of_day[1] if moment_of_day else f"{cell[: width - 1]}…"


def _cell(value: object) -> str:
    """On one line and without what could move a terminal's cursor: names and texts come from others."""
    return "-" if value is None or value == "" else _CONTROL.sub("�", str(value).replace("\n", " "))


def _coloured(text: str) -> str:
    colour = _COLOURS.get(text)
    return _styled(text, colour) if colour else text


def _styled(text: str, code: int) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def write(text: str) -> None:
    """A whole answer, as `click.echo` writes it: colours are for terminals."""
    shown = text if sys.stdout.isatty() else _STYLE.sub("", text)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


def age(then: datetime, now: datetime) -> str:
    """How long ago, in the largest unit that says something: "5 s", "3 min", "2 h", "4 d"."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def took(duration: timedelta) -> str:
    """A duration to three figures: "0.42 ms", "37.1 ms", "2.41 s", "75 s"."""
    ms = duration.total_seconds() * 1000
    if ms >= 10_000:
        return f"{ms / 1000:.0f} s"
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.3g} ms"


def size(count: int) -> str:
    """Bytes in binary units: "512 B", "3.4 MiB"."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def moment(milliseconds: int) -> str:
    """Unix milliseconds as local time."""
    return local(datetime.fromtimestamp(milliseconds / 1000).astimezone())


def familiar(reference: str) -> str:
    """An image's name as one types it: the hub's is left out."""
    return reference.removeprefix("docker.io/").removeprefix("library/")


def local(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
