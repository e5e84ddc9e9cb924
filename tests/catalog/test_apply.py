from pathlib import Path

import msgspec
import pytest

from hawker.catalog.apply import TOUCHED_LIMIT, TouchedKeys
from hawker.catalog.capture import ROW_BYTES
from hawker.catalog.change import Delta, Op, Position, ReplicatedTx, Scope, VersionedOp
from hawker.catalog.contract import ApplyOutcome
from hawker.catalog.storage import SqliteStorage
from hawker.ids import NodeId
from tests.catalog.disk import EPOCH, THINGS, A, B, gone, opened, put, rows, said, thing, tx, whole

HERE = (A, Scope.REGION)
CHECKED = """CREATE TABLE checked (
    node TEXT NOT NULL PRIMARY KEY, size INTEGER CHECK (size > 0), kind TEXT NOT NULL DEFAULT '');"""


@pytest.fixture
def replica(tmp_path: Path) -> SqliteStorage:
    return opened(tmp_path, B)


def at(outcome: ApplyOutcome, origin: NodeId = A) -> Position:
    return outcome.positions[origin, Scope.REGION]


def part(
    after: int, upto: int, *ops: tuple[int, Op], last: bool = True, reset: bool = True, epoch: int = EPOCH
) -> Delta:
    versioned = tuple(VersionedOp(version, op) for version, op in ops)
    return Delta(A, Scope.REGION, epoch, reset, after, upto, 0, versioned, last, upto if last else upto + 100)


def test_transactions_are_applied_in_their_order_only(replica: SqliteStorage) -> None:
    outcome = replica.apply([tx(2, thing(2, 20)), tx(1, thing(1, 10)), tx(3, thing(3, 30))])
    assert at(outcome) == Position(EPOCH, 1)
    assert outcome.touched.tables == {"things": frozenset({(A, 1)})}
    outcome = replica.apply([tx(1, thing(1, 99)), tx(2, thing(2, 20))])
    assert at(outcome) == Position(EPOCH, 2)
    assert rows(replica) == [(A, 1, 10), (A, 2, 20)]


def test_a_stream_begins_with_version_1_of_any_epoch_above_the_fence(replica: SqliteStorage) -> None:
    replica.fence(A, 5)
    assert at(replica.apply([tx(1, thing(1, 10), epoch=5)])) == Position(0, 0, 0, 5)
    assert at(replica.apply([tx(2, thing(1, 10), epoch=6)])) == Position(0, 0, 0, 5)
    assert at(replica.apply([tx(1, thing(1, 10), epoch=6)])) == Position(6, 1, 0, 5)


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_another_epoch_is_passed_over(replica: SqliteStorage, epoch: int) -> None:
    replica.apply([tx(1, thing(1, 10))])
    outcome = replica.apply([tx(1, thing(1, 0), epoch=epoch), tx(2, thing(1, 0), epoch=epoch)])
    assert at(outcome) == Position(EPOCH, 1)
    assert rows(replica) == [(A, 1, 10)]


def test_nobody_tells_a_node_what_it_said(tmp_path: Path) -> None:
    storage = opened(tmp_path, A)
    said(storage, put(1, 10))
    storage.apply([tx(2, thing(1, 99)), part(-1, 50, (50, thing(1, 99)), epoch=EPOCH + 1)])
    assert rows(storage) == [(A, 1, 10)]
    assert storage.positions(Scope.REGION)[A] == Position(EPOCH, 1)


def test_deletions_and_scopes(replica: SqliteStorage) -> None:
    node = Op("nodes", (A,), ("region",), ("mad",))
    outcome = replica.apply(
        [tx(1, thing(1, 10), thing(2, 20)), tx(2, Op("things", (A, 1))), tx(1, node, scope=Scope.GLOBAL)]
    )
    assert set(outcome.positions) == {HERE, (A, Scope.GLOBAL)}
    assert rows(replica) == [(A, 2, 20)]
    assert rows(replica, "SELECT node, region, labels FROM nodes") == [(A, "mad", "{}")]


def test_a_reset_in_parts_replaces_all_that_was_there(replica: SqliteStorage) -> None:
    replica.apply([tx(1, thing(1, 10), thing(2, 20)), tx(2, thing(9, 90))])
    first = replica.apply([part(-1, 5, (4, thing(1, 11)), (5, thing(5, 50)), last=False)])
    assert at(first).applied == -1
    assert at(replica.apply([tx(3, thing(7, 70))])).applied == -1
    assert at(replica.apply([part(3, 9, (9, thing(6, 60)))])).applied == -1, "no part goes on from version 3"
    last = replica.apply([part(5, 9, (8, Op("things", (A, 1))), (9, thing(6, 60)))])
    assert at(last) == Position(EPOCH, 9)
    assert rows(replica) == [(A, 5, 50), (A, 6, 60)]
    assert last.touched.tables["things"] == {(A, 1), (A, 2), (A, 6), (A, 9)}
    assert at(replica.apply([tx(10, thing(7, 70))])) == Position(EPOCH, 10)


def test_a_reset_that_was_cut_short_begins_again(replica: SqliteStorage, tmp_path: Path) -> None:
    replica.apply([tx(1, thing(1, 10))])
    replica.apply([part(-1, 5, (5, thing(5, 50)), last=False)])
    replica.close()
    again = opened(tmp_path, B)
    assert again.positions(Scope.REGION)[A].applied == -1
    assert at(again.apply([part(-1, 6, (6, thing(6, 60)))])) == Position(EPOCH, 6)
    assert rows(again) == [(A, 6, 60)]


def test_a_reset_that_knows_no_more_is_passed_over(replica: SqliteStorage) -> None:
    replica.apply([tx(1, thing(1, 10)), tx(2, thing(1, 11))])
    assert at(replica.apply([part(-1, 1, (1, thing(1, 10)))])) == Position(EPOCH, 2)
    assert at(replica.apply([part(-1, 9, (1, thing(1, 0)), epoch=EPOCH - 1)])) == Position(EPOCH, 2)
    assert at(replica.apply([part(-1, 1, (1, thing(3, 3)), epoch=EPOCH + 1)])) == Position(EPOCH + 1, 1)
    assert rows(replica) == [(A, 3, 3)]


def test_a_delta_goes_on_from_where_the_stream_is(replica: SqliteStorage) -> None:
    replica.apply([tx(1, thing(1, 10)), tx(2, thing(2, 20))])
    assert at(replica.apply([part(3, 9, (9, thing(9, 90)), reset=False)])).applied == 2
    assert at(replica.apply([part(1, 2, (2, thing(2, 0)), reset=False)])).applied == 2
    assert at(replica.apply([part(1, 5, (2, thing(2, 0)), (5, thing(3, 30)), reset=False)])).applied == 5
    assert rows(replica) == [(A, 1, 10), (A, 2, 20), (A, 3, 30)], "what is known of a row is not taken back"


def test_versions_outside_of_a_part_are_not_taken(replica: SqliteStorage) -> None:
    replica.apply([part(-1, 5, (7, thing(7, 70)), (5, thing(5, 50)))])
    assert rows(replica) == [(A, 5, 50)]


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (Op("things", (B, 1), ("size",), (1,)), "does not begin with the owner"),
        (Op("things", (), ("size",), (1,)), "does not begin with the owner"),
        (Op("things", (A,), ("size",), (1,)), "the key has 1 parts, not 2"),
        (Op("things", (A, None), ("size",), (1,)), "NOT NULL constraint failed"),
        (Op("things", (A, 1), ("size", "size"), (1,)), "not as many values as columns"),
        (Op("things", (A, 1), ("size",), ("x" * ROW_BYTES,)), "the row is too large"),
        (Op("things", (A, 1), ("size",), (2**63,)), "int too|too large|too big"),
        (Op("nodes", (A,), ("region",), ("mad",)), "the table is of scope global"),
        (Op("checked", (A,), ("size",), (-1,)), "CHECK constraint failed"),
        (Op("checked", (A,), ("kind",), (None,)), "NOT NULL constraint failed"),
    ],
)
def test_a_bad_row_is_set_aside_and_the_stream_goes_on(tmp_path: Path, op: Op, why: str) -> None:
    replica = opened(tmp_path, B, THINGS, CHECKED)
    outcome = replica.apply([tx(1, thing(5, 50), op), tx(2, thing(6, 60))])
    assert (outcome.quarantined, at(outcome).applied) == (1, 2)
    assert rows(replica) == [(A, 5, 50), (A, 6, 60)]
    ((origin, table, reason),) = replica.quarantined()
    assert (origin, table) == (A, op.table)
    assert msgspec.json.encode(reason)
    assert any(each in reason for each in why.split("|"))


def test_a_bad_row_that_was_mended_is_no_longer_aside(tmp_path: Path) -> None:
    replica = opened(
        tmp_path, B, "CREATE TABLE checked (node TEXT NOT NULL PRIMARY KEY, size INTEGER CHECK (size > 0));"
    )
    replica.apply([tx(1, Op("checked", (A,), ("size",), (1,))), tx(2, Op("checked", (A,), ("size",), (-1,)))])
    assert rows(replica, "SELECT size FROM checked") == [(1,)], "the last good one stays to be read"
    assert len(replica.quarantined()) == 1
    replica.apply([tx(3, Op("checked", (A,), ("size",), (3,)))])
    assert rows(replica, "SELECT size FROM checked") == [(3,)]
    assert replica.quarantined() == []


def test_an_unknown_table_waits_for_its_schema(tmp_path: Path) -> None:
    replica = opened(tmp_path, B)
    later = "CREATE TABLE later (node TEXT NOT NULL PRIMARY KEY, size INTEGER);"
    batch = [tx(1, Op("later", (A,), ("size",), (1,)), thing(1, 10)), tx(2, Op("later", (A,), ("size",), (2,)))]
    outcome = replica.apply(batch)
    assert (outcome.unknown, at(outcome).applied) == (2, 2)
    assert replica.declare([later]) == 1
    assert rows(replica, "SELECT * FROM later") == [(A, 2)]
    replica.apply([tx(3, Op("later", (A,)))])
    assert rows(replica, "SELECT * FROM later") == []


def test_an_unknown_column_waits_and_the_rest_of_the_row_is_there(tmp_path: Path) -> None:
    replica = opened(tmp_path, B)
    op = Op("things", (A, 1), ("colour", "size"), ("red", 10))
    assert replica.apply([tx(1, op)]).unknown == 1
    assert rows(replica) == [(A, 1, 10)]
    assert whole(replica).ops == (VersionedOp(1, op),)
    wider = THINGS.replace("size INTEGER", "size INTEGER, colour TEXT")
    assert replica.declare([wider]) == 1
    assert rows(replica) == [(A, 1, 10, "red")]
    assert replica.declare([wider]) == 0
    assert whole(replica).ops == (VersionedOp(1, Op("things", (A, 1), ("size", "colour"), (10, "red"))),)


def test_unknown_rows_go_on_to_others_and_with_their_deletion(tmp_path: Path) -> None:
    middle, end = (
        opened(tmp_path, B),
        opened(tmp_path, NodeId("cccccccc"), "CREATE TABLE later (node TEXT NOT NULL PRIMARY KEY, size);"),
    )
    middle.apply([tx(1, Op("later", (A,), ("size",), (1,)))])
    end.apply([whole(middle)])
    assert rows(end, "SELECT * FROM later") == [(A, 1)]
    middle.apply([tx(2, Op("later", (A,)))])
    end.apply([whole(middle, after=1)])
    assert rows(end, "SELECT * FROM later") == []


def test_a_sweep_takes_what_was_set_aside(replica: SqliteStorage) -> None:
    replica.apply([tx(1, Op("later", (A,), ("size",), (1,)), Op("things", (A,)))])
    replica.apply([part(-1, 3, (3, thing(1, 10)))])
    assert whole(replica).ops == (VersionedOp(3, thing(1, 10)),)
    assert replica.quarantined() == []


@pytest.mark.parametrize("number", [-1, 1 << 62, 1 << 80])
def test_numbers_beyond_reason_are_passed_over(replica: SqliteStorage, number: int) -> None:
    bad: list[ReplicatedTx | Delta] = [
        ReplicatedTx(A, Scope.REGION, number, 1, 1.0, ()),
        ReplicatedTx(A, Scope.REGION, 1, number, 1.0, ()),
        part(-1, number, epoch=1),
        part(-1, 5, epoch=number),
        part(number - 5, 5, reset=False),
    ]
    replica.apply([item for item in bad if item != part(-1, -1, epoch=1)])
    assert rows(replica) == []
    assert replica.positions(Scope.REGION).get(A, Position()) == Position()


def test_too_many_touched_keys_become_everything() -> None:
    touch = TouchedKeys()
    for number in range(TOUCHED_LIMIT + 1):
        touch.add("t", (number,))
    result = touch.result()
    assert result.everything
    assert len(result.tables["t"]) == TOUCHED_LIMIT


def test_a_deletion_that_is_heard_twice(tmp_path: Path, replica: SqliteStorage) -> None:
    owner = opened(tmp_path, A)
    first, second, third = said(owner, put(1, 10)), said(owner, gone(1)), said(owner, put(1, 12))
    replica.apply([first, second, second, third, first])
    assert rows(replica) == rows(owner) == [(A, 1, 12)]
