"""Answers out of the catalog: a statement's rows, and what becomes of them."""

from collections.abc import AsyncIterator, Iterator

from hawker.api.contract.catalog import QUERY_CATALOG, SUBSCRIBE_CATALOG, CatalogLine, CatalogStatement, Cell
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.catalog.change import Value
from hawker.catalog.contract import Catalog, ResultTable, RowChange, Statement
from hawker.errors import NotServed, Unprocessable

TIMEOUT_S, MOST_TIMEOUT_S = 10, 600
OTHERS_TIMEOUT_S = 10  # of whoever has not the root token itself
_BYTE_MAX = 255


class CatalogHandlers:
    """`catalog` is None on a node that is alone."""

    def __init__(self, catalog: Catalog | None) -> None:
        self._catalog = catalog

    def bind(self, handlers: Handlers) -> None:
        handlers.stream(QUERY_CATALOG, self.query)
        handlers.stream(SUBSCRIBE_CATALOG, self.subscribe)

    async def query(self, call: Call[NoParams, NoQuery, CatalogStatement]) -> AsyncIterator[CatalogLine]:
        catalog, statement = self._served(), _statement(call.body)
        timeout_s = TIMEOUT_S if call.body.timeout is None else call.body.timeout
        most = MOST_TIMEOUT_S if isinstance(call.grant, Everything) else OTHERS_TIMEOUT_S
        if not 1 <= timeout_s <= most:
            raise Unprocessable(f"timeout must be from 1 to {most} seconds, not {timeout_s}")
        return _each(_lines(await catalog.query(statement, timeout_s=timeout_s)))

    async def subscribe(self, call: Call[NoParams, NoQuery, CatalogStatement]) -> AsyncIterator[CatalogLine]:
        return self._follow(self._served(), _statement(call.body))

    async def _follow(self, catalog: Catalog, statement: Statement) -> AsyncIterator[CatalogLine]:
        async with catalog.subscribe(statement) as told:
            async for said in told:
                if isinstance(said, RowChange):
                    yield CatalogLine(row=_cells(said.row), change=said.kind)
                    continue
                for line in _lines(said):
                    yield line

    def _served(self) -> Catalog:
        if self._catalog is None:
            raise NotServed("this node is alone and has no catalog: start it with --advertise, or `hawker join` one")
        return self._catalog


async def _each(lines: Iterator[CatalogLine]) -> AsyncIterator[CatalogLine]:
    for line in lines:
        yield line


def _lines(table: ResultTable) -> Iterator[CatalogLine]:
    yield CatalogLine(columns=table.columns)
    for row in table.rows:
        yield CatalogLine(row=_cells(row))
    yield CatalogLine(complete=True)


def _cells(row: tuple[Value, ...]) -> tuple[Cell, ...]:
    return tuple(tuple(value) if isinstance(value, bytes) else value for value in row)


def _statement(body: CatalogStatement) -> Statement:
    return Statement(query=body.query, params=tuple(map(_value, body.params or ())))


def _value(cell: Cell) -> Value:
    if not isinstance(cell, tuple):
        return cell
    if any(not 0 <= byte <= _BYTE_MAX for byte in cell):
        raise Unprocessable("a parameter of bytes is a list of numbers from 0 to 255")
    return bytes(cell)
