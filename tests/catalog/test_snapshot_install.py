import hashlib
from pathlib import Path

import apsw
import pytest
import zstandard

from hawker.catalog.change import Op, Position, Scope, VersionedOp
from hawker.catalog.snapshot_install import SnapshotRefused
from hawker.catalog.storage import SqliteStorage
from tests.catalog.disk import EPOCH, THINGS, A, B, C, gone, opened, put, rows, said, thing, tx, whole


def passed_on(source: SqliteStorage, target: SqliteStorage) -> None:
    snapshot = source.snapshot(source.path.with_name("snapshot"))
    try:
        assert target.install(source.path.with_name("snapshot"), snapshot.digest).everything
    finally:
        snapshot.close()


def test_a_fresh_node_has_all_streams(tmp_path: Path) -> None:
    owner, fresh = opened(tmp_path), opened(tmp_path, B)
    owner.apply([tx(1, thing(5, 50, C), node=C)])
    for number in range(3):
        said(owner, put(number, number))
    said(owner, gone(0))
    passed_on(owner, fresh)
    assert rows(fresh) == rows(owner)
    assert fresh.positions(Scope.REGION) == {**owner.positions(Scope.REGION), B: Position(EPOCH, 0)}
    assert whole(fresh).ops == whole(owner).ops, "deletions too"
    fresh.apply([said(owner, put(9, 9)), tx(2, thing(6, 60, C), node=C)])
    assert rows(fresh) == [*rows(owner), (C, 6, 60)]


def test_snapshot_install_leaves_streams_that_are_further(tmp_path: Path) -> None:
    owner, target = opened(tmp_path), opened(tmp_path, B)
    first = said(owner, put(1, 10))
    snapshot = owner.snapshot(tmp_path / "snapshot")
    target.apply([first, said(owner, put(2, 20)), tx(1, thing(5, 50, C), node=C)])
    said(target, put(7, 70, B))
    target.install(tmp_path / "snapshot", snapshot.digest)
    assert rows(target) == [(A, 1, 10), (A, 2, 20), (B, 7, 70), (C, 5, 50)]
    assert target.positions(Scope.REGION)[A] == Position(EPOCH, 2)


def test_snapshot_install_replaces_streams_that_are_behind(tmp_path: Path) -> None:
    owner, target = opened(tmp_path), opened(tmp_path, B)
    target.apply([said(owner, put(1, 10), put(2, 20))])
    target.apply([tx(1, Op("later", (C,)), node=C)])
    said(owner, gone(1))
    owner.renew(Scope.REGION, EPOCH + 1)
    passed_on(owner, target)
    assert rows(target) == [(A, 2, 20)]
    assert target.positions(Scope.REGION)[A] == owner.positions(Scope.REGION)[A]


def test_the_rows_of_this_node_are_its_own(tmp_path: Path) -> None:
    """A node that lost its database is told of itself by the others, and does not listen."""
    owner, witness = opened(tmp_path), opened(tmp_path, B)
    witness.apply([said(owner, put(1, 10))])
    (tmp_path / "again").mkdir()
    again = opened(tmp_path / "again")
    said(again, put(2, 20))
    passed_on(witness, again)
    assert rows(again) == [(A, 2, 20)]


def test_fenced_streams_do_not_come_back(tmp_path: Path) -> None:
    owner, target = opened(tmp_path), opened(tmp_path, B)
    said(owner, put(1, 10))
    target.fence(A, EPOCH)
    passed_on(owner, target)
    assert rows(target) == []
    assert target.positions(Scope.REGION)[A] == Position(0, 0, 0, EPOCH)


def test_a_reset_under_way_is_ended_and_none_is_begun(tmp_path: Path) -> None:
    owner, halfway, target = opened(tmp_path), opened(tmp_path, B), opened(tmp_path, C)
    for number in range(3):
        said(owner, put(number, number))
    halfway.apply([owner.delta(A, Scope.REGION, -1, 1)])
    passed_on(halfway, target)
    assert A not in target.positions(Scope.REGION)
    passed_on(owner, halfway)
    assert rows(halfway) == rows(owner)
    assert halfway.positions(Scope.REGION)[A] == owner.positions(Scope.REGION)[A]


def test_tables_that_differ_are_taken_row_by_row(tmp_path: Path) -> None:
    wider = THINGS.replace("size INTEGER", "size INTEGER, colour TEXT DEFAULT 'red'")
    more = "CREATE TABLE more (node TEXT NOT NULL PRIMARY KEY, size INTEGER);"
    owner, target = opened(tmp_path, A, wider + more), opened(tmp_path, B)
    said(owner, put(1, 10))
    owner.apply([tx(1, Op("more", (C,), ("size",), (5,)), Op("newest", (C,)), node=C)])
    passed_on(owner, target)
    assert rows(target) == [(A, 1, 10)]
    assert VersionedOp(1, Op("more", (C,), ("size",), (5,))) in whole(target, C).ops
    assert target.declare([THINGS + more]) == 1
    assert rows(target, "SELECT * FROM more") == [(C, 5)]


def test_rows_that_do_not_fit_here_are_set_aside(tmp_path: Path) -> None:
    owner = opened(tmp_path)
    target = opened(tmp_path, B, THINGS.replace("size INTEGER", "size INTEGER CHECK (size < 100)"))
    said(owner, put(1, 10), put(2, 200))
    passed_on(owner, target)
    assert rows(target) == [(A, 1, 10)]
    assert len(target.quarantined()) == 1
    assert target.positions(Scope.REGION)[A].applied == 1


def test_rows_set_aside_are_passed_on(tmp_path: Path) -> None:
    owner, target = opened(tmp_path), opened(tmp_path, B)
    odd = Op("things", (C, 1), ("colour",), ("red",))
    owner.apply([tx(1, odd, thing(2, 20, C), Op("later", (C,), ("x",), (1,)), node=C)])
    passed_on(owner, target)
    assert {each.op for each in whole(target, C).ops} == {each.op for each in whole(owner, C).ops}
    assert rows(target) == rows(owner)


def test_a_damaged_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    owner, target = opened(tmp_path), opened(tmp_path, B)
    said(owner, put(1, 10))
    file = tmp_path / "snapshot"
    snapshot = owner.snapshot(file)
    whole_file = file.read_bytes()
    for damaged in (whole_file[:-1], whole_file + b"x", b"", bytes([whole_file[0] ^ 1]) + whole_file[1:]):
        file.write_bytes(damaged)
        with pytest.raises(SnapshotRefused, match="is damaged: it is not the file that was promised"):
            target.install(file, snapshot.digest)
    assert rows(target) == []
    assert [*tmp_path.glob("*.installing*")] == []


def other_files(folder: Path) -> list[bytes]:
    made = []
    for number, statements in enumerate(
        ["CREATE TABLE t (a)", "CREATE TABLE __c_table (name, scope); CREATE VIEW things AS SELECT 1", "SELECT 1"]
    ):
        connection = apsw.Connection(str(folder / f"other{number}"))
        connection.execute(statements).fetchall()
        connection.close()
        made.append((folder / f"other{number}").read_bytes())
    return [*made, b"no database", b"x" * 100_000]


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    target = opened(tmp_path, B)
    for content in other_files(tmp_path):
        for packed in (zstandard.ZstdCompressor().compress(content), content):
            file = tmp_path / "file"
            file.write_bytes(packed)
            with pytest.raises(SnapshotRefused, match="is damaged"):
                target.install(file, digest_of(packed))
    assert said(target, put(1, 1, B)).version == 1
    assert [*tmp_path.glob("*.installing*")] == []


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
