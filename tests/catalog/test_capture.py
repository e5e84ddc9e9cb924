from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.capture import ROW_BYTES, TX_BYTES, StatementFailed, op_size, size_of
from hawker.catalog.change import Op, Scope, Value
from hawker.catalog.contract import Statement
from hawker.catalog.messages import MOST_BYTES, PullAnswer, encode
from hawker.catalog.replication import BULK_BYTES
from hawker.catalog.storage import ROWS_PER_VERSION
from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded
from hawker.gossip.streams import MESSAGE_BYTES
from tests.catalog.disk import A, B, gone, opened, put, rows, said, thing, tx


def test_the_net_effect_is_published(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10), put(2, 20))
    committed = storage.commit([put(1, 11), put(1, 12), gone(2), put(3, 30), gone(3)], 1.0)
    (change,) = committed.txs
    assert {*change.ops} == {thing(1, 12), Op("things", (A, 2))}


def test_transaction_without_net_change_has_no_version(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    for statements in ([put(1, 10)], [put(2, 1), gone(2)], [put(1, 11), put(1, 10)], [gone(9)]):
        committed = storage.commit(statements, 1.0)
        assert (committed.txs, committed.token) == ((), None)
    assert said(storage, put(1, 11)).version == 2


def test_a_changed_key_is_a_deletion_and_a_row(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    change = said(storage, Statement(query="UPDATE things SET id = 5"))
    assert {*change.ops} == {Op("things", (A, 1)), thing(5, 10)}


def test_whole_rows_are_published_and_computed_columns_are_not(tmp_path: Path) -> None:
    table = """CREATE TABLE t (twice AS (a * 2), b TEXT DEFAULT 'x', id INTEGER NOT NULL, a INTEGER, node TEXT NOT NULL,
        PRIMARY KEY (node, id));"""
    storage = opened(tmp_path, A, table)
    first = said(storage, Statement(query="INSERT INTO t (node, id, a) VALUES (?, 1, 7)", params=(A,)))
    second = said(storage, Statement(query="UPDATE t SET a = 8"))
    assert first.ops == (Op("t", (A, 1), ("b", "a"), ("x", 7)),)
    assert second.ops == (Op("t", (A, 1), ("b", "a"), ("x", 8)),)


def test_one_transaction_of_two_scopes_is_two(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    node = Statement(query="INSERT INTO nodes (node) VALUES (?)", params=(A,))
    committed = storage.commit([node, put(1, 10)], 1.0)
    assert [(tx.scope, tx.version) for tx in committed.txs] == [(Scope.REGION, 1), (Scope.GLOBAL, 1)]
    assert str(committed.token) == f"{A}:3:1"
    only = storage.commit([Statement(query="DELETE FROM nodes")], 1.0)
    assert [tx.scope for tx in only.txs] == [Scope.GLOBAL]
    assert str(only.token) == f"{A}:3:2"


@pytest.mark.parametrize(
    "text", ["UPDATE things SET size = 1", "DELETE FROM things", "UPDATE things SET node = 'aaaaaaaa'"]
)
def test_a_row_of_another_node_is_not_ours_to_change(tmp_path: Path, text: str) -> None:
    storage = opened(tmp_path)
    storage.apply([tx(1, thing(1, 10, B), node=B)])
    with pytest.raises(StatementFailed, match="only its owner may change"):
        storage.commit([put(7, 7), Statement(query=text)], 1.0)
    assert rows(storage) == [(B, 1, 10)]


def test_a_row_may_not_be_too_large(tmp_path: Path) -> None:
    with pytest.raises(StatementFailed, match="a row may have"):
        opened(tmp_path).commit([put(1, "x" * ROW_BYTES)], 1.0)


def test_a_transaction_may_not_be_too_large_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    row = "x" * (ROW_BYTES // 2)
    most = [put(number, row) for number in range(TX_BYTES // (ROW_BYTES // 2) - 1)]
    with pytest.raises(StatementFailed, match=f"may have {TX_BYTES} bytes: make it several"):
        storage.commit([*most, put(1000, row), put(1001, row)], 1.0)
    assert rows(storage) == []
    change = said(storage, *most)
    assert len(encode(PullAnswer(txs=(change,), deltas=(), more=False))) < MESSAGE_BYTES


def test_the_longest_transaction_and_the_longest_version_of_a_stream_begun_again_fit_one_answer() -> None:
    """Beside what else is in it."""
    assert max(TX_BYTES, ROWS_PER_VERSION * ROW_BYTES) * 9 / 8 + BULK_BYTES < min(MESSAGE_BYTES, MOST_BYTES)


def test_sizes_are_about_bytes() -> None:
    assert size_of((1, None, "abc", b"abcd")) == 4 * 8 + 3 + 4
    assert size_of(("\u00e9\u20ac",)) == 8 + 5


@given(
    st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(), st.binary(), st.none()), max_size=9)
)
def test_an_op_takes_no_more_than_its_size_and_an_eighth(values: list[Value]) -> None:
    op = Op("things", (A, 1), tuple(f"column{number}" for number in range(len(values))), tuple(values))
    assert len(msgspec.msgpack.encode(op)) <= op_size(op) * 9 / 8


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
