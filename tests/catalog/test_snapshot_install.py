import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import apsw
import pytest
import zstandard

from hawker.catalog.change import Delta, Op, Position, Scope, VersionedOp
from hawker.catalog.snapshot_install import SnapshotRefused
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from tests.catalog.disk import EPOCH, THINGS, A, B, C, gone, opened, put, rows, said, thing, tx, whole


def parts(source: SqliteStorage, after: int, max_bytes: int) -> list[Delta]:
    """As a reader asks for them one after the other."""
    found = [source.delta(A, Scope.REGION, after, max_bytes)]
    while not found[-1].last:
        since = found[0].head if found[0].reset else -1
        found.append(source.delta(A, Scope.REGION, found[-1].upto, max_bytes, since=since))
    return found


def test_each_row_comes_once_in_the_order_of_versions(tmp_path: Path) -> None:
    owner = opened(tmp_path)
    for size in (10, 11):
        said(owner, put(1, size))
        said(owner, put(2, size))
    said(owner, gone(1))
    delta = whole(owner, after=1)
    assert [(each.version, each.op) for each in delta.ops] == [(4, thing(2, 11)), (5, Op("things", (A, 1)))]
    assert (delta.reset, delta.after, delta.upto, delta.head, delta.last) == (False, 1, 5, 5, True)


def test_parts_end_between_versions_and_have_at_least_one(tmp_path: Path) -> None:
    owner = opened(tmp_path)
    for version in range(5):
        said(owner, *(put(version * 10 + each, 1) for each in range(4)))
    for after in (0, -1):
        found = parts(owner, after, 1)
        assert [len(part.ops) for part in found] == [4] * 5
        assert [part.upto for part in found] == [1, 2, 3, 4, 5]
        assert [part.last for part in found] == [False] * 4 + [True]
        assert all(part.reset == (after == -1) for part in found)


def test_a_reader_below_the_floor_gets_a_reset(tmp_path: Path) -> None:
    clock = ManualClock()
    owner, reader = opened(tmp_path, clock=clock), opened(tmp_path, B)
    reader.apply([said(owner, put(1, 10), put(2, 20))])
    said(owner, gone(1))
    said(owner, put(3, 30))
    clock.advance(100.0)
    assert owner.collect(clock.now() - 50.0) == 1
    assert owner.positions(Scope.REGION)[A].floor == 2
    assert whole(owner, after=2).reset is False
    delta = whole(owner, after=1)
    assert (delta.reset, delta.after, delta.floor) == (True, -1, 2)
    reader.apply([delta])
    assert rows(reader) == rows(owner) == [(A, 2, 20), (A, 3, 30)]
    assert reader.positions(Scope.REGION)[A] == owner.positions(Scope.REGION)[A]


def test_a_reset_goes_on_while_the_stream_does(tmp_path: Path) -> None:
    owner, reader = opened(tmp_path), opened(tmp_path, B)
    for number in range(6):
        said(owner, put(number, number))
    first = owner.delta(A, Scope.REGION, -1, 1)
    reader.apply([first])
    said(owner, gone(0))
    said(owner, put(1, 100), put(7, 7))
    reader.apply([owner.delta(A, Scope.REGION, first.upto, 1 << 20, since=first.head)])
    assert rows(reader) == rows(owner)
    assert reader.positions(Scope.REGION)[A].applied == 8


def test_a_reset_begins_again_where_deletions_since_are_no_longer_known(tmp_path: Path) -> None:
    clock = ManualClock()
    owner = opened(tmp_path, clock=clock)
    for number in range(3):
        said(owner, put(number, number))
    first = owner.delta(A, Scope.REGION, -1, 1)
    said(owner, gone(0))
    clock.advance(100.0)
    owner.collect(clock.now())
    again = owner.delta(A, Scope.REGION, first.upto, 1, since=first.head)
    assert (again.reset, again.after) == (True, -1)


def test_another_replica_can_go_on_with_a_reset(tmp_path: Path) -> None:
    owner, other, reader = opened(tmp_path), opened(tmp_path, B), opened(tmp_path, C)
    for number in range(6):
        other.apply([said(owner, put(number, number))])
    first = owner.delta(A, Scope.REGION, -1, 1)
    reader.apply([first, other.delta(A, Scope.REGION, first.upto, 1 << 20, since=first.head)])
    assert rows(reader) == rows(owner)


def test_replica_that_knows_no_more_answers_with_an_empty_delta(tmp_path: Path) -> None:
    owner, reader, behind = opened(tmp_path), opened(tmp_path, B), opened(tmp_path, C)
    changes = [said(owner, put(number, number)) for number in range(3)]
    reader.apply(changes)
    behind.apply(changes[:1])
    for delta in (whole(behind, after=3), whole(behind, after=1), opened(tmp_path, A).delta(C, Scope.REGION, 0, 1)):
        before = reader.positions(Scope.REGION)
        reader.apply([delta])
        assert reader.positions(Scope.REGION) == before


def test_a_replica_in_the_middle_of_a_reset_serves_nobody(tmp_path: Path) -> None:
    owner, reader = opened(tmp_path), opened(tmp_path, B)
    for number in range(3):
        said(owner, put(number, number))
    reader.apply([owner.delta(A, Scope.REGION, -1, 1)])
    for after in (-1, 0, 1):
        delta = reader.delta(A, Scope.REGION, after, 1 << 20)
        assert (delta.ops, delta.reset, delta.upto) == ((), False, after)
    assert delta.epoch == EPOCH


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


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """What is written beyond it fails, as on a full disk."""
    before = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, before)


def test_snapshot_that_the_disk_does_not_take_leaves_it_no_file(tmp_path: Path) -> None:
    owner, target = opened(tmp_path), opened(tmp_path, B)
    said(owner, put(1, 10))
    snapshot = owner.snapshot(tmp_path / "snapshot")
    assert snapshot.size_bytes < 16_384
    with largest_file(16_384), pytest.raises(OSError, match="too large"):
        target.install(tmp_path / "snapshot", snapshot.digest)
    assert [*tmp_path.glob("*.installing*")] == []
    target.install(tmp_path / "snapshot", snapshot.digest)
    assert rows(target) == rows(owner)


def test_snapshot_half_unpacked_when_the_daemon_died_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / f"{B}.db.installing"
    left.write_bytes(b"half")
    opened(tmp_path, B)
    assert not left.exists()


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
