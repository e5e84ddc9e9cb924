from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.catalog.contract import ResultTable, RowChange, Statement
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.catalog.reads import MOST_ROWS, Reads
from hawker.clock import SystemClock
from hawker.errors import BadRequest, Unprocessable
from tests.catalog.served import NODE, Served, served

pytestmark = pytest.mark.anyio
_NUMBERS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {}) SELECT x FROM n"


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as running:
        yield running


@pytest.fixture
def reads(one: Served) -> Reads:
    clock = SystemClock()
    return Reads(ReadPool(lambda: ReadConnection(one.storage.path, clock)), one.live, clock)


async def test_whole_answers(reads: Reads) -> None:
    assert reads.query(Statement(query="SELECT 1 AS a"), 60) == ResultTable(columns=("a",), rows=((1,),))
    assert len(reads.query(Statement(query=_NUMBERS.format(MOST_ROWS)), 60).rows) == MOST_ROWS


async def test_an_answer_has_a_bound(reads: Reads) -> None:
    with pytest.raises(Unprocessable, match="ask for less"):
        reads.query(Statement(query=_NUMBERS.format(MOST_ROWS + 1)), 60)


async def test_statement_that_writes_is_refused(reads: Reads) -> None:
    with pytest.raises(BadRequest, match="not readonly"):
        reads.query(Statement(query="DELETE FROM machines"), 60)


async def test_live_answers(one: Served, reads: Reads) -> None:
    async with reads.subscribe(Statement(query="SELECT id FROM machines")) as told:
        assert await anext(told) == ResultTable(columns=("id",), rows=())
        await one.node.commit([Statement(query="INSERT INTO machines (node, id) VALUES (?, 'a')", params=(NODE,))])
        assert await anext(told) == RowChange(kind="insert", row_id=1, row=("a",), number=1)
