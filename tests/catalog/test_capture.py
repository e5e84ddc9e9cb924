from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.capture import ROW_BYTES, TX_BYTES, op_size, size_of
from hawker.catalog.change import Op, Scope, Value
from hawker.catalog.contract import Statement
from hawker.catalog.messages import MOST_BYTES, PullAnswer, encode
from hawker.catalog.replication import BULK_BYTES
from hawker.catalog.statements import StatementFailed
from hawker.catalog.storage import ROWS_PER_VERSION
from hawker.gossip.secure_stream import MESSAGE_BYTES
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
