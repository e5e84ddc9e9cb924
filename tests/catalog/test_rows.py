import apsw
import pytest

from hawker.catalog.change import Op, Scope, VersionedOp
from hawker.catalog.database import side_tables
from hawker.catalog.rows import TableRows
from hawker.catalog.schema import described

TABLE = """CREATE TABLE things (size INTEGER DEFAULT 5, id INTEGER NOT NULL, node TEXT NOT NULL,
    colour TEXT DEFAULT 'red',
    twice AS (size * 2), PRIMARY KEY (node, id)) WITHOUT ROWID"""


@pytest.fixture
def connection() -> apsw.Connection:
    return apsw.Connection(":memory:")


@pytest.fixture
def rows(connection: apsw.Connection) -> TableRows:
    table = described(TABLE, Scope.REGION)
    connection.execute(TABLE)
    for statement in side_tables(connection, table):
        connection.execute(statement)
    return TableRows(connection, table)


def test_a_column_that_is_not_named_gets_its_default(rows: TableRows) -> None:
    rows.put(("a", 1), ("size", "colour"), (7, "blue"))
    rows.put(("a", 1), ("size",), (8,))
    assert rows.read(("a", 1)) == (8, 1, "a", "red")


def test_only_a_later_version_is_news(rows: TableRows) -> None:
    assert rows.note(("a", 1), 5, 0, 0)
    assert not rows.note(("a", 1), 5, 0, 0)
    assert not rows.note(("a", 1), 4, 0, 9)
    assert rows.note(("a", 1), 6, 0, 9)
    assert rows.note(("a", 1), 1, 1, 0), "another run begins anew"
    rows.unnote(("a", 1))
    assert rows.note(("a", 1), 1, 1, 0)


def test_changes_come_by_version_without_defaults(rows: TableRows) -> None:
    for version, number, size in ((3, 1, 5), (2, 2, 6), (9, 3, 7)):
        rows.note(("a", number), version, 0, 0)
        rows.put(("a", number), ("size", "colour"), (size, "red" if number != 2 else "blue"))
    rows.note(("a", 4), 4, 0, 100)
    rows.note(("b", 1), 5, 0, 0)
    rows.put(("b", 1), (), ())
    assert [*rows.changed("a", 1)] == [
        VersionedOp(2, Op("things", ("a", 2), ("size", "colour"), (6, "blue"))),
        VersionedOp(3, Op("things", ("a", 1), (), ())),
        VersionedOp(4, Op("things", ("a", 4))),
        VersionedOp(9, Op("things", ("a", 3), ("size",), (7,))),
    ]
    assert [change.version for change in rows.changed("a", 3)] == [4, 9]


def test_a_default_of_another_type_is_said(rows: TableRows) -> None:
    rows.note(("a", 1), 1, 0, 0)
    rows.put(("a", 1), ("size",), (None,))
    (change,) = rows.changed("a", 0)
    assert change.op.columns == ("size",)


def test_a_sweep_takes_what_was_not_confirmed(rows: TableRows) -> None:
    for number, run in ((1, 0), (2, 1)):
        rows.note(("a", number), 1, run, 0)
        rows.put(("a", number), (), ())
    rows.note(("b", 1), 1, 0, 0)
    assert rows.sweep("a", 1) == [("a", 1)]
    assert (rows.count("a"), rows.count("b")) == (1, 1)
    with pytest.raises(AssertionError):
        rows.read(("a", 1))


def test_deletions_are_collected_by_owner(rows: TableRows) -> None:
    for owner, number, version, died in (("a", 1, 5, 100), ("a", 2, 7, 120), ("a", 3, 9, 300), ("b", 1, 2, 100)):
        rows.note((owner, number), version, 0, died)
    assert rows.collect(200) == [("a", 7, 2), ("b", 2, 1)]
    assert rows.collect(200) == []
    assert rows.count("a") == 1


def test_columns_that_others_name_do_not_fill_the_memory(rows: TableRows) -> None:
    for number in range(200):
        with pytest.raises(apsw.SQLError):
            rows.put(("a", 1), (f"c{number}",), (1,))
    assert len(rows._puts) == 100


def test_a_table_of_a_key_alone(connection: apsw.Connection) -> None:
    text = "CREATE TABLE images (node TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (node, digest))"
    table = described(text, Scope.REGION)
    connection.execute(text)
    for statement in side_tables(connection, table):
        connection.execute(statement)
    images = TableRows(connection, table)
    for _ in range(2):
        images.put(("a", "x"), (), ())
    images.note(("a", "x"), 1, 0, 0)
    assert [*images.changed("a", 0)] == [VersionedOp(1, Op("images", ("a", "x"), (), ()))]
    images.drop("a")
    assert images.count("a") == 0
