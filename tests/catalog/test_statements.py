from pathlib import Path

import pytest

from hawker.catalog.contract import Statement
from hawker.catalog.statements import StatementFailed
from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded
from tests.catalog.disk import A, opened, put, rows, said

ENDLESS = (
    "INSERT INTO things WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n) SELECT 'aaaaaaaa', i, i FROM n"
)


class Hasty(ManualClock):
    """Time passes with each look at the clock."""

    def monotonic(self) -> float:
        self.advance(0.01)
        return super().monotonic()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("UPDATE __c_lease SET run = ''", "table __c_lease is not one that replicates"),
        ("INSERT INTO things__m VALUES ('a', 1, 1, 0, 0)", "table things__m is not one"),
        ("DELETE FROM __corro_members", "not one that replicates"),
        ("CREATE TABLE t (a)", "cannot be written here"),
        ("DROP TABLE things", "cannot be written here|not allowed"),
        ("ALTER TABLE things ADD COLUMN x", "not allowed|cannot be written"),
        ("PRAGMA synchronous = OFF", "pragma is not allowed"),
        ("ATTACH 'x' AS x", "attach is not allowed"),
        ("COMMIT", "transaction is not allowed"),
        ("SAVEPOINT x", "savepoint is not allowed"),
        ("VACUUM", "not allowed|cannot VACUUM"),
        ("SELECT load_extension('x')", "not allowed|no such function|not authorized"),
        ("SELECT next_version()", "not allowed"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("-- nothing", "the statement is empty"),
        ("", "the statement is empty"),
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("INSERT INTO nowhere VALUES (1)", "no such table: nowhere"),
        ("INSERT INTO things (node, id) VALUES ('aaaaaaaa', NULL)", "NOT NULL constraint failed"),
    ],
)
def test_forbidden_statement_is_refused(tmp_path: Path, query: str, why: str) -> None:
    storage = opened(tmp_path)
    with pytest.raises(StatementFailed, match=why):
        storage.commit([put(1, 10), Statement(query=query)], 1.0)
    assert rows(storage) == []
    assert said(storage, put(1, 11)).version == 1


def test_the_catalogs_own_statements_are_not_lent(tmp_path: Path) -> None:
    """The same text, prepared for the catalog and still cached, is looked at again."""
    storage = opened(tmp_path)
    storage.set_members([])
    with pytest.raises(StatementFailed, match="not one that replicates"):
        storage.commit([Statement(query="DELETE FROM __corro_members")], 1.0)


def test_parameters_by_position_and_by_name(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    text = "INSERT INTO things VALUES (:node, $id, @size)"
    said(storage, Statement(query=text, named_params={"node": A, "id": 1, "size": b"\0\xff"}))
    said(storage, Statement(query="INSERT INTO things VALUES (?, ?, ?)", params=(A, 2, 2.5)))
    assert rows(storage) == [(A, 1, b"\0\xff"), (A, 2, 2.5)]


@pytest.mark.parametrize(
    "statement",
    [
        Statement(query="SELECT ?", params=(1, 2)),
        Statement(query="SELECT ?, ?", params=(1,)),
        Statement(query="SELECT :a", named_params={"a": 1, "b": 2}),
        Statement(query="SELECT :a", named_params={"b": 2}),
        Statement(query="SELECT ?", params=(2**64,)),
        Statement(query="SELECT ?", params=("\ud800",)),
    ],
)
def test_parameters_that_do_not_fit(tmp_path: Path, statement: Statement) -> None:
    with pytest.raises(StatementFailed):
        opened(tmp_path).commit([statement], 1.0)


def test_transaction_that_takes_too_long_is_rolled_back(tmp_path: Path) -> None:
    storage = opened(tmp_path, clock=Hasty())
    with pytest.raises(DeadlineExceeded):
        storage.commit([put(1, 10), Statement(query=ENDLESS)], 1.0, timeout_s=5.0)
    assert rows(storage) == []
    assert said(storage, put(1, 11)).version == 1


def test_each_statement_tells_its_rows_and_its_time(tmp_path: Path) -> None:
    storage = opened(tmp_path, clock=Hasty())
    effects = storage.commit(
        [put(1, 1), put(2, 1), Statement(query="UPDATE things SET size = 2"), Statement(query="SELECT 1")], 1.0
    ).effects
    assert [effect.rows_affected for effect in effects] == [1, 1, 2, 0]
    assert all(effect.seconds > 0 for effect in effects)
