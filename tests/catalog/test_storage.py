import shutil
from pathlib import Path

import pytest

from hawker.catalog.apply import TOUCHED_LIMIT
from hawker.catalog.capture import StatementFailed
from hawker.catalog.change import Delta, Op, Position, Scope
from hawker.catalog.contract import Statement, Storage
from hawker.catalog.schema import SchemaRefused
from hawker.catalog.storage import ROWS_PER_VERSION, MemberRow, SqliteStorage
from hawker.clock import ManualClock
from hawker.errors import BadRequest, Unavailable
from tests.catalog.disk import EPOCH, THINGS, A, B, C, gone, opened, put, rows, said, thing, tx, whole


def mine(storage: SqliteStorage, scope: Scope = Scope.REGION) -> Position:
    return storage.positions(scope)[storage.node]


def bare(folder: Path, boot: str = "boot") -> SqliteStorage:
    """As it is found, nothing renewed."""
    return SqliteStorage(folder / f"{A}.db", A, ManualClock(), [THINGS], boot=lambda: boot)


def killed(storage: SqliteStorage, folder: Path) -> Path:
    """The files as a process that is killed leaves them, in a folder of their own."""
    folder.mkdir()
    for file in storage.path.parent.glob(f"{storage.path.name}*"):
        shutil.copy(file, folder / file.name)
    return folder


def test_sqlite_storage_keeps_the_contract(tmp_path: Path) -> None:
    storage: Storage = opened(tmp_path)
    assert storage.positions(Scope.REGION) == {A: Position(EPOCH, 0)}
    storage.close()


def test_a_fresh_file_is_renewed_before_anything_is_said(tmp_path: Path) -> None:
    storage = bare(tmp_path)
    assert not storage.proven()
    with pytest.raises(Unavailable, match="published before"):
        storage.commit([put(1, 10)], 1.0)
    assert storage.renew(Scope.REGION, 7) == Position(7, 0)
    assert not storage.proven()
    storage.renew(Scope.GLOBAL, 8)
    assert storage.proven()
    assert said(storage, put(1, 10)) == tx(1, thing(1, 10), epoch=7)


def test_file_closed_in_good_order_goes_on_in_its_epoch(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.close()
    again = bare(tmp_path, boot="another")
    assert again.proven()
    assert said(again, put(2, 20)).version == 2


def test_a_killed_process_goes_on_in_its_epoch(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    again = bare(killed(storage, tmp_path / "killed"))
    assert again.proven()
    assert said(again, put(2, 20)) == tx(2, thing(2, 20))


def test_a_host_that_went_down_begins_a_new_epoch(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    again = bare(killed(storage, tmp_path / "killed"), boot="another")
    assert not again.proven()
    assert again.renew(Scope.REGION, 0) == Position(EPOCH + 1, 1, 1)


def test_a_restored_copy_begins_a_new_epoch(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.close()
    shutil.copy(storage.path, tmp_path / "backup")
    again = bare(tmp_path)
    said(again, put(2, 20))
    again.close()
    shutil.copy(tmp_path / "backup", storage.path)
    restored = bare(tmp_path)
    assert not restored.proven()
    assert restored.renew(Scope.REGION, 0).epoch == EPOCH + 1


def test_a_deleted_file_begins_a_new_epoch(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.close()
    storage.path.unlink()
    again = bare(tmp_path)
    assert not again.proven()
    assert again.renew(Scope.REGION, 0).epoch == EPOCH + 1, "the lease knows the last one"


def test_a_new_epoch_says_all_that_is_there_again(tmp_path: Path) -> None:
    owner, reader = opened(tmp_path), opened(tmp_path, B)
    count = 2 * ROWS_PER_VERSION + 1
    reader.apply([said(owner, *(put(number, number) for number in range(count + 1))), said(owner, gone(count))])
    assert owner.renew(Scope.REGION, EPOCH) == Position(EPOCH + 1, 3, 3)
    assert owner.replay(A, Scope.REGION, 0, 1 << 20) == []
    sizes: dict[int, int] = {}
    for each in whole(owner).ops:
        sizes[each.version] = sizes.get(each.version, 0) + 1
    assert sizes == {1: ROWS_PER_VERSION, 2: ROWS_PER_VERSION, 3: 1}
    reader.apply([whole(owner), said(owner, put(1, -1))])
    assert rows(reader) == rows(owner)
    assert mine(owner, Scope.GLOBAL) == Position(EPOCH, 0)


def test_a_fence_sweeps_what_it_covers(tmp_path: Path) -> None:
    owner, reader = opened(tmp_path), opened(tmp_path, B)
    node = Op("nodes", (A,), ("region",), ("mad",))
    reader.apply([said(owner, put(1, 10)), tx(1, node, scope=Scope.GLOBAL, epoch=9), tx(1, thing(1, 1, C), node=C)])
    reader.fence(A, EPOCH)
    assert rows(reader) == [(C, 1, 1)]
    assert rows(reader, "SELECT node FROM nodes") == [(A,)]
    assert reader.positions(Scope.REGION)[A] == Position(0, 0, 0, EPOCH)
    assert reader.positions(Scope.GLOBAL)[A] == Position(9, 1, 0, EPOCH)
    reader.fence(A, 1)
    assert reader.positions(Scope.REGION)[A].fence == EPOCH
    reader.apply([said(owner, put(2, 20)), whole(owner)])
    assert rows(reader) == [(C, 1, 1)]
    owner.renew(Scope.REGION, 0)
    reader.apply([whole(owner)])
    assert rows(reader) == [(A, 1, 10), (A, 2, 20), (C, 1, 1)]


def test_a_node_that_was_forgotten_speaks_again_above_the_fence(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.fence(A, EPOCH + 4)
    assert rows(storage) == [(A, 1, 10)]
    with pytest.raises(Unavailable):
        storage.commit([put(2, 20)], 1.0)
    for scope in Scope:
        assert storage.renew(scope, 0).epoch == EPOCH + 5
    assert said(storage, put(2, 20)).epoch == EPOCH + 5


def test_a_fence_between_two_renewals_asks_for_no_more_than_it_covers(tmp_path: Path) -> None:
    storage = bare(tmp_path)
    storage.renew(Scope.REGION, 7)
    storage.fence(A, 6)
    storage.renew(Scope.GLOBAL, 8)
    assert storage.proven()
    storage.fence(A, 7)
    assert not storage.proven()
    storage.renew(Scope.REGION, 9)
    assert storage.proven()


def test_a_fence_outlives_a_restart(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.fence(A, EPOCH)
    storage.close()
    assert not bare(tmp_path).proven()


def test_the_log_replays_what_was_said_and_heard(tmp_path: Path) -> None:
    owner, reader = opened(tmp_path), opened(tmp_path, B)
    changes = [said(owner, put(number, number)) for number in range(5)]
    reader.apply(changes)
    for storage in (owner, reader):
        assert [*storage.replay(A, Scope.REGION, 2, 1 << 20)] == changes[2:]
    assert owner.replay(C, Scope.REGION, 0, 1) == ()


def test_collecting_drops_old_deletions_and_logs_and_raises_floors(tmp_path: Path) -> None:
    clock = ManualClock()
    owner, reader = opened(tmp_path, clock=clock), opened(tmp_path, B, clock=clock)
    reader.apply([said(owner, put(1, 10)), said(owner, gone(1)), tx(1, Op("later", (C,)), node=C)])
    begun = clock.now()
    clock.advance(86_400.0)
    reader.apply([said(owner, put(2, 20)), said(owner, gone(2))])
    for storage in (owner, reader):
        assert storage.collect(begun) == 0
        assert storage.collect(begun + 1) == 1
        assert storage.positions(Scope.REGION)[A] == Position(EPOCH, 4, 2)
        assert storage.replay(A, Scope.REGION, 0, 1 << 20) == []
        assert len(storage.replay(A, Scope.REGION, 2, 1 << 20)) == 2
    assert reader.positions(Scope.REGION)[C].floor == 1, "those of unknown tables too"


def test_members_are_told_to_any_query(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.set_members(
        [MemberRow(host=A, state="alive", since=5.0), MemberRow(host=C, state="suspect", since=6.0, rtt=0.02)]
    )
    storage.set_members([MemberRow(host=A, state="suspect", since=7.0, epoch=3)])
    text = "SELECT m.*, t.size FROM __corro_members m JOIN things t ON t.node = m.host"
    assert rows(storage, text) == [(A, "suspect", 7.0, None, 3, 10)]


def test_only_what_reads_is_a_query(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    for text in ("DELETE FROM things", "PRAGMA user_version = 1", "nothing", "SELECT 1; SELECT 2"):
        with pytest.raises(BadRequest):
            storage.query(Statement(query=text))
    table = storage.query(Statement(query="SELECT :a AS x, 2 AS y", named_params={"a": 1}))
    assert (table.columns, table.rows) == (("x", "y"), ((1, 2),))


def test_an_answer_without_end_is_refused(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    with pytest.raises(BadRequest, match="narrow it"):
        opened(tmp_path).query(Statement(query=endless))


def test_a_transaction_has_a_statement(tmp_path: Path) -> None:
    with pytest.raises(StatementFailed, match="at least 1 statement is required"):
        opened(tmp_path).commit([], 1.0)


def test_a_bad_schema_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SchemaRefused):
        opened(tmp_path, A, "CREATE TABLE t (a)")
    assert opened(tmp_path).tables()["things"] is Scope.REGION


def test_transaction_that_fails_halfway_leaves_nothing_in_memory(tmp_path: Path) -> None:
    """The file is full, as far as SQLite can tell."""
    storage, reader = opened(tmp_path), opened(tmp_path, B)
    first = said(storage, put(1, 10))
    pages = reader._connection.pragma("page_count")
    reader._connection.pragma("max_page_count", pages)
    large = [tx(version, *(thing(version * 1000 + n, "x" * 1000) for n in range(50))) for version in range(2, 9)]
    with pytest.raises(Unavailable, match="full"):
        reader.apply([first, *large])
    assert reader.positions(Scope.REGION) == {B: Position(EPOCH, 0)}
    reader._connection.pragma("max_page_count", 1 << 30)
    reader.apply([first])
    assert rows(reader) == rows(storage)
    assert [*reader.replay(A, Scope.REGION, 0, 1 << 20)] == [first]


def test_more_rows_than_are_named_are_one_transaction(tmp_path: Path) -> None:
    owner, reader = opened(tmp_path), opened(tmp_path, B)
    numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {TOUCHED_LIMIT + 1})"
    change = said(owner, Statement(query=f"INSERT INTO things {numbers} SELECT ?, i, i FROM n", params=(A,)))
    assert len(change.ops) == TOUCHED_LIMIT + 1
    assert reader.apply([change]).touched.everything
    total = "SELECT count(*), sum(size) FROM things"
    assert rows(reader, total) == rows(owner, total)


def test_a_delta_of_nothing_says_nothing(tmp_path: Path) -> None:
    delta = opened(tmp_path).delta(C, Scope.REGION, -1, 1)
    assert delta == Delta(C, Scope.REGION, 0, False, -1, -1, 0, (), True, 0)
    reader = opened(tmp_path, B)
    reader.apply([delta])
    assert reader.positions(Scope.REGION).get(C, Position()) == Position()


def test_disk_that_cannot_even_be_read_is_waited_for(tmp_path: Path) -> None:
    storage, reader = opened(tmp_path), opened(tmp_path, B)
    first, second = said(storage, put(1, 10)), said(storage, put(2, 20))
    reader.apply([first])
    reader._connection.set_progress_handler(lambda: True, 1)
    for ask in (
        lambda: reader.apply([second]),
        lambda: reader.replay(A, Scope.REGION, 0, 1 << 20),
        lambda: whole(reader),
        reader.quarantined,
    ):
        with pytest.raises(Unavailable):
            ask()
    reader._connection.set_progress_handler(None)
    assert [*reader.replay(A, Scope.REGION, 0, 1 << 20)] == [first]
    reader.apply([second])
    assert rows(reader) == rows(storage)


def test_proof_that_the_disk_does_not_take_is_begun_again(tmp_path: Path) -> None:
    blocked = tmp_path / f"{A}.db.lease.new"
    blocked.mkdir()
    storage = bare(tmp_path)
    storage.renew(Scope.GLOBAL, EPOCH)
    with pytest.raises(Unavailable, match="cannot be written"):
        storage.renew(Scope.REGION, EPOCH)
    assert not storage.proven()
    blocked.rmdir()
    assert storage.renew(Scope.REGION, EPOCH).epoch > EPOCH and storage.proven()


def test_catalog_opens_on_a_full_disk_and_renews_its_streams_later(tmp_path: Path) -> None:
    opened(tmp_path).close()
    blocked = tmp_path / f"{A}.db.lease.new"
    blocked.mkdir()
    storage = bare(tmp_path)
    assert not storage.proven()
    blocked.rmdir()
    for scope in Scope:
        storage.renew(scope, EPOCH)
    assert storage.proven() and mine(storage).epoch > EPOCH


def test_catalog_that_cannot_be_closed_in_good_order_is_closed(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    (tmp_path / f"{A}.db.lease.new").mkdir()
    storage.close()
    (tmp_path / f"{A}.db.lease.new").rmdir()
    assert opened(tmp_path).proven()
