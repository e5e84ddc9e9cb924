import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hawker.catalog import read_connection
from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.catalog.read_connection import NOT_READING, SPARE, SQL_BYTES, VALUE_BYTES, ReadConnection, ReadPool
from hawker.clock import ManualClock
from hawker.errors import BadRequest, DeadlineExceeded, Fault
from tests.waiting import LONG_S

_ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


class Ticking(ManualClock):
    """A second passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "catalog.db"
    writer = apsw.Connection(str(file))
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("CREATE TABLE t (a NOT NULL PRIMARY KEY, b) WITHOUT ROWID; CREATE VIEW v AS SELECT a FROM t")
    writer.execute("INSERT INTO t VALUES (1, 'one'), (2, x'00ff')")
    yield file
    writer.close()


@pytest.fixture
def guarded(file: Path) -> Iterator[ReadConnection]:
    one = ReadConnection(file, Ticking())
    yield one
    one.close()


def _ask(guarded: ReadConnection, query: str, *params: int | str) -> list[tuple[object, ...]]:
    answer = guarded.start(Statement(query=query, params=params))
    try:
        return list(guarded.take(answer, rows=100, size_bytes=1 << 20))
    finally:
        answer.close()


def test_reading_statement_is_answered(guarded: ReadConnection) -> None:
    assert _ask(guarded, "SELECT * FROM t ORDER BY a") == [(1, "one"), (2, b"\0\xff")]
    assert _ask(guarded, "SELECT a FROM v WHERE a > ?", 1) == [(2,)]
    assert guarded.start(Statement(query="SELECT a AS x FROM t WHERE 0")).columns == ("x",)


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO t VALUES (3, 'x')",
        "DELETE FROM t",
        "UPDATE t SET b = 1",
        "REPLACE INTO t VALUES (1, 2)",
        "DROP TABLE t",
        "CREATE TABLE u (a)",
        "ALTER TABLE t ADD COLUMN c",
        "WITH x AS (SELECT 1) DELETE FROM t",
    ],
)
def test_statement_that_writes_is_refused(guarded: ReadConnection, query: str) -> None:
    with pytest.raises(BadRequest, match=f"{NOT_READING}|not allowed here"):
        _ask(guarded, query)


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "PRAGMA writable_schema = 1",
        "PRAGMA table_info(t)",
        "SELECT * FROM pragma_table_info('t')",
        "SELECT load_extension('evil')",
        "SELECT fts3_tokenizer('x')",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT x",
        "VACUUM INTO '/tmp/copy'",
        "ANALYZE",
        "REINDEX",
        "SELECT 1; DROP TABLE t",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "SELEC",
        "SELECT * FROM nowhere",
        "SELECT ?",
    ],
)
def test_anything_but_one_reading_statement_is_refused(guarded: ReadConnection, query: str) -> None:
    with pytest.raises(BadRequest):
        _ask(guarded, query)
    assert _ask(guarded, "SELECT count(*) FROM t") == [(2,)]


@pytest.mark.parametrize(
    "query",
    ["SELECT " + "(" * 5000 + "1" + ")" * 5000, "SELECT " + "1," * 5000 + "1", "SELECT " + "1+" * 50_000 + "1"],
)
def test_statements_that_would_cost_too_much_to_read_are_refused(guarded: ReadConnection, query: str) -> None:
    with pytest.raises(BadRequest):
        _ask(guarded, query)


def test_a_huge_statement_is_refused(guarded: ReadConnection) -> None:
    with pytest.raises(BadRequest, match="bytes"):
        _ask(guarded, "SELECT '" + "x" * SQL_BYTES + "'")


@pytest.mark.parametrize("query", [f"SELECT zeroblob({VALUE_BYTES + 1})", "SELECT printf('%*d', 1000000000, 1)"])
def test_a_value_has_a_bound(guarded: ReadConnection, query: str) -> None:
    with pytest.raises(Fault):
        _ask(guarded, query)


def test_a_text_that_is_no_text_fails(guarded: ReadConnection) -> None:
    with pytest.raises(Fault, match="utf-8"):
        _ask(guarded, "SELECT CAST(x'ff' AS TEXT)")


def test_a_statement_that_keeps_too_much_ends_and_writes_no_file(
    guarded: ReadConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_connection, "HEAP_BYTES", 1)
    with pytest.raises(DeadlineExceeded):
        _ask(guarded, _ENDLESS)


def test_an_endless_statement_ends_at_its_deadline(guarded: ReadConnection) -> None:
    guarded.deadline(guarded._clock.monotonic() + 5)
    with pytest.raises(DeadlineExceeded):
        _ask(guarded, _ENDLESS)


def test_an_unknown_named_parameter_is_an_error_of_a_query_only(guarded: ReadConnection) -> None:
    statement = Statement(query="SELECT :a", named_params={"a": 1, "b": 2})
    with pytest.raises(BadRequest, match="no parameter 'b'"):
        guarded.start(statement)
    assert guarded.look(statement).sql == "SELECT 1"


def test_a_look_tells_what_is_read_and_runs_nothing(guarded: ReadConnection) -> None:
    look = guarded.look(Statement(query=f"SELECT a, ({_ENDLESS}) AS n FROM v WHERE a = ?", params=("o'x",)))
    assert look.columns == ("a", "n")
    assert look.reads >= {"t", "v"}
    assert look.sql.endswith("a = 'o''x'")


def test_a_snapshot_stays_as_it_was(file: Path, guarded: ReadConnection) -> None:
    with guarded.snapshot():
        assert _ask(guarded, "SELECT count(*) FROM t") == [(2,)]
        writer = apsw.Connection(str(file))
        writer.execute("DELETE FROM t")
        writer.close()
        assert _ask(guarded, "SELECT count(*) FROM t") == [(2,)]
    assert _ask(guarded, "SELECT count(*) FROM t") == [(0,)]


def test_rows_come_in_portions(guarded: ReadConnection) -> None:
    answer = guarded.start(Statement(query="WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 9) "
                                           "SELECT x, 'text' FROM n"))  # fmt: skip
    assert len(guarded.take(answer, rows=4, size_bytes=1000)) == 4
    assert len(guarded.take(answer, rows=100, size_bytes=30)) == 3
    assert len(guarded.take(answer, rows=100, size_bytes=1000)) == 2
    assert guarded.take(answer, rows=100, size_bytes=1000) == []


def test_a_pool_keeps_a_few(file: Path) -> None:
    opened: list[ReadConnection] = []

    def make() -> ReadConnection:
        opened.append(ReadConnection(file, ManualClock()))
        return opened[-1]

    pool = ReadPool(make)
    taken = [pool.take() for _ in range(SPARE + 3)]
    for one in taken:
        pool.give(one)
    for _ in range(5):
        with pool.one() as one:
            assert one in opened
    assert len(opened) == SPARE + 3
    pool.close()


def test_running_query_can_be_interrupted(file: Path) -> None:
    pool = ReadPool(lambda: ReadConnection(file, ManualClock()))
    failed: list[Exception] = []
    guarded = pool.take()
    begun = threading.Event()

    def mark(*_: Value) -> Value:
        begun.set()
        return 1

    guarded.connection.create_scalar_function("begun", mark, 0)

    def run() -> None:
        try:
            _ask(guarded, _ENDLESS.replace("SELECT 1 ", "SELECT begun() "))
        except DeadlineExceeded as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(LONG_S)
    while thread.is_alive():
        pool.interrupt()
        thread.join(0.05)
    assert failed
    pool.give(guarded)
    pool.close()
