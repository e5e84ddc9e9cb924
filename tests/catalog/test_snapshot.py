import sqlite3
from pathlib import Path

import pytest
import zstandard

from hawker.catalog.change import Scope
from hawker.catalog.contract import Statement
from hawker.catalog.snapshot import Snapshot, make, stored
from hawker.catalog.storage import Member
from hawker.errors import Unavailable
from tests.catalog.disk import A, B, opened, put, said, thing, tx


def unpacked(snapshot: Snapshot, folder: Path) -> sqlite3.Connection:
    raw = snapshot.read(0, snapshot.size_bytes)
    (folder / "unpacked").write_bytes(zstandard.ZstdDecompressor().decompressobj().decompress(raw))
    return sqlite3.connect(folder / "unpacked")


def test_it_has_the_streams_and_nothing_of_this_node_alone(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    said(storage, Statement(query="INSERT INTO nodes (node) VALUES (?)", params=(A,)))
    storage.set_members([Member(host=B, state="alive", since=1.0)])
    copy = unpacked(storage.snapshot(tmp_path / "snapshot"), tmp_path)
    assert copy.execute("SELECT * FROM things").fetchall() == [(A, 1, 10)]
    assert copy.execute("SELECT node FROM nodes").fetchall() == [(A,)]
    names = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert not names & {"__c_log", "__c_lease", "__corro_members"}
    assert copy.execute("SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE INDEX%'").fetchone() == (0,)


def test_another_region_gets_the_global_scope_only(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    said(storage, Statement(query="INSERT INTO nodes (node) VALUES (?)", params=(A,)))
    copy = unpacked(make(storage.path, tmp_path / "snapshot", {Scope.GLOBAL}), tmp_path)
    names = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert "things" not in names
    assert copy.execute("SELECT DISTINCT scope FROM __c_origin").fetchall() == [("global",)]
    assert copy.execute("SELECT node FROM nodes").fetchall() == [(A,)]


def test_it_is_of_one_moment_and_the_node_goes_on(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    snapshot = storage.snapshot(tmp_path / "snapshot")
    said(storage, put(2, 20))
    storage.apply([tx(1, thing(5, 50, B), node=B)])
    assert unpacked(snapshot, tmp_path).execute("SELECT id FROM things").fetchall() == [(1,)]


def test_parts_may_be_read_again_and_the_file_goes_with_it(tmp_path: Path) -> None:
    snapshot = opened(tmp_path).snapshot(tmp_path / "snapshot")
    size = snapshot.size_bytes
    parts = [snapshot.read(offset, 100) for offset in range(0, size, 100)]
    assert b"".join(parts) == snapshot.read(0, size)
    assert snapshot.read(size, 100) == b""
    snapshot.close()
    assert [path.name for path in tmp_path.glob("snapshot*")] == []


def test_no_room_for_it_is_said_so(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    with pytest.raises(Unavailable, match="no snapshot of the catalog could be made"):
        storage.snapshot(tmp_path / "nowhere" / "snapshot")


def test_computed_columns_are_not_stored(tmp_path: Path) -> None:
    storage = opened(tmp_path, A, "CREATE TABLE t (node TEXT NOT NULL PRIMARY KEY, a AS (1), b, c AS (2) STORED);")
    assert stored(storage._connection, "main", "t") == ("node", "b")
    said(storage, Statement(query="INSERT INTO t VALUES (?, 7)", params=(A,)))
    copy = unpacked(storage.snapshot(tmp_path / "snapshot"), tmp_path)
    assert copy.execute("SELECT * FROM t").fetchall() == [(A, 1, 7, 2)]
