from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from hawker.api.contract.catalog import QUERY_CATALOG, SUBSCRIBE_CATALOG, CatalogLine, CatalogStatement
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.catalog.change import Token
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement
from hawker.errors import BadRequest, NotServed, Unprocessable
from hawker.handlers.catalog import CatalogHandlers
from hawker.sim.node.sim_worker import SimWorker

pytestmark = pytest.mark.anyio
_TABLE = ResultTable(columns=("id", "data"), rows=(("a", b"\0\xff"), ("b", None)))


class Canned:
    """A catalog that knows one answer and one change of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Statement, float]] = []

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        return None

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        return lambda: None

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        self.asked.append((statement, timeout_s))
        if statement.query == "SELEC":
            raise BadRequest("syntax error")
        return _TABLE

    @asynccontextmanager
    async def subscribe(self, statement: Statement) -> AsyncIterator[AsyncIterator[ResultTable | RowChange]]:
        async def told() -> AsyncIterator[ResultTable | RowChange]:
            yield _TABLE
            yield RowChange(kind="delete", row_id=1, row=("a", b"\0\xff"), number=1)

        yield told()

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        return True


def _caller(worker: SimWorker, catalog: Canned | None) -> InProcessCaller:
    handlers = Handlers()
    CatalogHandlers(catalog).bind(handlers)
    return InProcessCaller(handlers, worker.parts.deps.clock, "tester")


async def test_rows_follow_the_columns(worker: SimWorker) -> None:
    catalog = Canned()
    body = CatalogStatement(query="SELECT ?", params=("x", (0, 255)), timeout=7)
    async with _caller(worker, catalog).stream(QUERY_CATALOG, body=body) as lines:
        assert [line async for line in lines] == [
            CatalogLine(columns=("id", "data")),
            CatalogLine(row=("a", (0, 255))),
            CatalogLine(row=("b", None)),
            CatalogLine(complete=True),
        ]
    assert catalog.asked == [(Statement(query="SELECT ?", params=("x", b"\0\xff")), 7)]


async def test_changes_follow_the_rows(worker: SimWorker) -> None:
    async with _caller(worker, Canned()).stream(SUBSCRIBE_CATALOG, body=CatalogStatement(query="SELECT 1")) as lines:
        heard = [line async for line in lines]
    assert heard[3:] == [CatalogLine(complete=True), CatalogLine(row=("a", (0, 255)), change="delete")]


@pytest.mark.parametrize("route", [QUERY_CATALOG, SUBSCRIBE_CATALOG])
async def test_a_node_that_is_alone_has_none(worker: SimWorker, route: object) -> None:
    assert route in (QUERY_CATALOG, SUBSCRIBE_CATALOG)
    asked = QUERY_CATALOG if route is QUERY_CATALOG else SUBSCRIBE_CATALOG
    with pytest.raises(NotServed, match="this node is alone"):
        async with _caller(worker, None).stream(asked, body=CatalogStatement(query="SELECT 1")) as lines:
            assert [line async for line in lines] == []


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (CatalogStatement(query="SELEC"), BadRequest),
        (CatalogStatement(query="SELECT 1", timeout=0), Unprocessable),
        (CatalogStatement(query="SELECT 1", timeout=601), Unprocessable),
        (CatalogStatement(query="SELECT ?", params=((256,),)), Unprocessable),
    ],
)
async def test_a_table_that_cannot_be_asked(worker: SimWorker, body: CatalogStatement, error: type[Exception]) -> None:
    with pytest.raises(error):
        async with _caller(worker, Canned()).stream(QUERY_CATALOG, body=body) as lines:
            assert [line async for line in lines] == []
