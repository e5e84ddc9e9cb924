from pathlib import Path

import msgspec

from hawker.catalog.change import Position, Scope
from hawker.catalog.database import Database
from hawker.catalog.streams import LARGE_BYTES, ReplayLog, StreamPositions, StreamState
from tests.catalog.disk import A, B, thing, tx


def test_positions_of_a_transaction_are_adopted_after_its_commit(tmp_path: Path) -> None:
    origins = StreamPositions(Database(tmp_path / "c.db").connection)
    origins.put(msgspec.structs.replace(origins.get(A, Scope.REGION), epoch=2, applied=7))
    assert origins.positions(Scope.REGION) == {}
    origins.write()
    origins.after_commit()
    assert origins.positions(Scope.REGION) == {A: Position(2, 7)}
    assert origins.positions(Scope.GLOBAL) == {}


def test_positions_of_a_rolled_back_transaction_are_dropped(tmp_path: Path) -> None:
    origins = StreamPositions(Database(tmp_path / "c.db").connection)
    origins.put(msgspec.structs.replace(origins.get(A, Scope.REGION), epoch=2, applied=7))
    origins.after_rollback()
    assert origins.find(A, Scope.REGION) is None


def test_streams_are_read_back_whole(tmp_path: Path) -> None:
    connection = Database(tmp_path / "c.db").connection
    origins = StreamPositions(connection)
    first = origins.get(A, Scope.REGION)
    stream = StreamState(
        number=first.number, origin=A, scope=Scope.REGION, epoch=1, applied=2, floor=3, fence=4, run=5, came=6
    )
    origins.put(stream)
    other = origins.get(B, Scope.GLOBAL)
    assert other.number != stream.number
    origins.write()
    assert {*StreamPositions(connection).all()} == {stream, other}
    assert stream.position == Position(1, 2, 3, 4)
    assert not other.begun


def log_of(folder: Path, versions: int, *, limit: int = 1 << 20) -> ReplayLog:
    database = Database(folder / "c.db")
    log = ReplayLog(database.connection, limit)
    with database.transaction(durable=False):
        for version in range(1, versions + 1):
            log.add(1, tx(version, thing(version, "x" * 100)), float(version))
    return log


def versions(log: ReplayLog, after: int, max_bytes: int = 1 << 20, stream: int = 1) -> list[int]:
    return [tx.version for tx in log.replay(stream, after, max_bytes)]


def test_transactions_come_as_they_were_said(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3)
    assert [*log.replay(1, 1, 1 << 20)] == [tx(2, thing(2, "x" * 100)), tx(3, thing(3, "x" * 100))]
    assert versions(log, 3) == []
    assert versions(log, 0, stream=2) == []


def test_a_part_has_at_least_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5)
    assert versions(log, 0, max_bytes=0) == [1]
    assert versions(log, 0, max_bytes=350) == [1, 2]


def test_a_gap_ends_what_can_be_replayed(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3)
    log.add(1, tx(7), 1.0)
    assert versions(log, 0) == [1, 2, 3]
    assert versions(log, 4) == []


def test_the_ring_keeps_its_size(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1000, limit=20_000)
    assert log.size_bytes <= 20_000
    assert versions(log, 0) == []
    assert versions(log, 990) == [*range(991, 1001)]


def test_log_entries_that_are_too_old_go(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1000)
    log.trim(601.0)
    assert versions(log, 599) == []
    assert versions(log, 600)[0] == 601
    size = log.size_bytes
    log.load()
    assert log.size_bytes == size


def test_a_stream_that_begins_again_has_none(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3)
    log.drop(1)
    assert versions(log, 0) == []
    assert log.size_bytes == 0


def test_a_large_one_is_at_hand_until_the_next_trimming(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1)
    large = tx(2, thing(2, "x" * LARGE_BYTES))
    log.add(1, large, 2.0)
    assert log.replay(1, 1, 1 << 20)[0] is large
    log.trim(0.0)
    assert log.replay(1, 1, 1 << 20)[0] == large
    assert log.replay(1, 1, 1 << 20)[0] is not large
