"""`hawker catalog`: ask what the whole cluster tells itself, in SQL."""

import csv
import io
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import click

from hawker.api.caller import Caller
from hawker.api.contract.catalog import QUERY_CATALOG, SUBSCRIBE_CATALOG, CatalogLine, CatalogStatement
from hawker.cli.connect import talk
from hawker.cli.output import Form, line_of_json, output_option, table
from hawker.cli.output import as_json as in_json

sql_argument = click.argument("sql", metavar="SQL")
params_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="VALUE",
    help="The value of the next ? of the statement; may be repeated.",
)


@click.group("catalog", no_args_is_help=True)
def command() -> None:
    """Query the catalog in SQL: what the nodes of the cluster publish. It is read only."""


@command.command("schema")
def schema() -> None:
    """Print the tables that an agent of --catalog-url needs. They go into one of its schema files."""
    click.echo((files("hawker.catalog") / "tables.sql").read_text(), nl=False)


@command.command("query")
@sql_argument
@params_option
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@output_option
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a heading.")
@click.option("--timeout", type=click.IntRange(1, 600), metavar="SECONDS", help="How long it may take. [default: 60]")
@click.pass_context
def query(
    ctx: click.Context, sql: str, params: tuple[str, ...], as_json: bool, form: Form, as_csv: bool, timeout: int | None
) -> None:
    """Print the rows of a SELECT. Tables are machines, nodes, services, volumes, apps, capacity, images and others."""
    if (as_json or form is Form.JSON) and as_csv:
        raise click.UsageError("JSON and --csv exclude each other")
    body = CatalogStatement(query=sql, params=params, timeout=timeout)

    async def ask(caller: Caller) -> list[CatalogLine]:
        async with caller.stream(QUERY_CATALOG, body=body) as lines:
            return [line async for line in lines]

    columns, rows = _answer(talk(ctx, ask))
    if form is Form.JSON:
        click.echo(in_json([dict(zip(columns, row, strict=True)) for row in rows]))
    elif as_json:
        for row in rows:
            click.echo(line_of_json(dict(zip(columns, row, strict=True))))
    else:
        click.echo(_csv(columns, rows) if as_csv else table([column.upper() for column in columns], _shown(rows)))


@command.command("subscribe")
@sql_argument
@params_option
@click.option("--json", "as_json", is_flag=True, help="Print one object a line: columns, row, change, complete.")
@click.pass_context
def subscribe(ctx: click.Context, sql: str, params: tuple[str, ...], as_json: bool) -> None:
    """Print the rows of a SELECT, then their changes.

    It goes on until Ctrl-C.

    + is a row that came, - one that went, = one that changed; rows of the beginning have none of them."""

    async def follow(caller: Caller) -> None:
        async with caller.stream(SUBSCRIBE_CATALOG, body=CatalogStatement(query=sql, params=params)) as lines:
            async for line in lines:
                text = line_of_json(line) if as_json else _event(line)
                if text:
                    click.echo(text)

    talk(ctx, follow)


_MARKS = {None: " ", "insert": "+", "delete": "-", "update": "="}


def _event(line: CatalogLine) -> str:
    """One line; none for the end of the beginning."""
    if line.columns is not None:
        return "  " + "  ".join(column.upper() for column in line.columns)
    if line.row is None:
        return ""
    (cells,) = _shown([line.row])
    return f"{_MARKS.get(line.change, '?')} " + "  ".join("-" if cell is None else _plain(cell) for cell in cells)


def _answer(lines: Sequence[CatalogLine]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    columns = next((line.columns for line in lines if line.columns is not None), ())
    return columns, [line.row for line in lines if line.row is not None]


def _shown(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Bytes as hexadecimal digits."""
    return [[bytes(cell).hex() if isinstance(cell, tuple) else cell for cell in row] for row in rows]


def _plain(cell: object) -> str:
    """On one line, and without what could move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(cell))


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(_shown(rows))
    return out.getvalue().rstrip("\n")
