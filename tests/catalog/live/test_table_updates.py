from pathlib import Path

import apsw

from hawker.catalog.contract import Touched
from hawker.catalog.live.join_tree import TableInfo
from hawker.catalog.live.table_updates import MOST_KEYS, TOO_MUCH, ChangeBuffer, TableUpdates
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.clock import ManualClock


def _touched(table: str, *keys: int) -> Touched:
    return Touched(tables={table: frozenset((key,) for key in keys)})


def test_keys_gather_until_they_are_taken() -> None:
    pending = ChangeBuffer()
    pending.add(_touched("Machines", 1, 2))
    pending.add(_touched("machines", 2, 3))
    assert pending.count == 3
    batch = pending.take()
    assert batch.tables == {"machines": {(1,), (2,), (3,)}}
    assert not batch.everything
    assert pending.take().empty


def test_too_many_keys_are_everything() -> None:
    pending = ChangeBuffer()
    pending.add(_touched("machines", *range(MOST_KEYS + 1)))
    batch = pending.take()
    assert batch.everything
    assert batch.tables == {}
    assert not batch.empty


def test_everything_stays_everything() -> None:
    pending = ChangeBuffer()
    pending.add(Touched(tables={}, everything=True))
    pending.add(_touched("machines", 1))
    assert pending.take() == type(pending.take())({}, True)


def test_whether_rows_are_there(tmp_path: Path) -> None:
    file, clock = tmp_path / "catalog.db", ManualClock()
    db = apsw.Connection(str(file))
    db.execute("CREATE TABLE t (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID")
    db.executemany("INSERT INTO t VALUES ('n', ?)", [(number,) for number in range(600)])
    pool = ReadPool(lambda: ReadConnection(file, clock))
    updates = TableUpdates(TableInfo("t", ("a", "b"), ("a", "b")), pool, clock)
    told = updates.look([("n", number) for number in range(590, 1200)])
    assert [one.content for one in told[:2]] == [("update", ("n", 590)), ("update", ("n", 591))]
    assert [one.content for one in told[10:12]] == [("delete", ("n", 600)), ("delete", ("n", 601))]
    assert len(told) == 610
    assert told[0].line == b'{"notify":["update",["n",590]]}\n'
    pool.close()
    db.close()


def test_too_much_ends_it() -> None:
    clock = ManualClock()
    updates = TableUpdates(TableInfo("t", ("a",), ("a",)), ReadPool(lambda: ReadConnection(Path(), clock)), clock)
    updates.overflow()
    assert updates.feed.closed
    assert "read the table anew" in TOO_MUCH
