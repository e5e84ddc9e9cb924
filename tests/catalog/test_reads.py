from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.catalog.contract import ResultTable, RowChange, Statement
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.catalog.reads import MOST_ROWS, PointReader, Reads
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, CannotStart, Unavailable, Unprocessable
from tests.catalog.served import NODE, Served, served
from tests.gateway.catalogs import A, Files

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


def test_point_reader_sees_a_commit_at_once(tmp_path: Path) -> None:
    files = Files(tmp_path, ManualClock())
    files.of(A)
    glance = PointReader(files.path(A))
    assert glance.rows("SELECT region FROM nodes WHERE node = ?", A) == []
    files.node(A, "mad")
    assert glance.rows("SELECT region FROM nodes WHERE node = ?", A) == [("mad",)]
    glance.close()
    files.close()


def test_nothing_can_be_written(tmp_path: Path) -> None:
    files = Files(tmp_path, ManualClock())
    files.node(A, "mad")
    glance = PointReader(files.path(A))
    for query in ("DELETE FROM nodes", "PRAGMA query_only = 0; DELETE FROM nodes"):
        with pytest.raises(Unavailable):
            glance.rows(query)
    assert glance.rows("SELECT count(*) FROM nodes") == [(1,)]
    glance.close()
    files.close()


def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="does its node run here"):
        PointReader(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("not a database at all, and long enough to be read as one" * 20)
    with pytest.raises(CannotStart):
        PointReader(tmp_path / "text.db")
