from pathlib import Path

import msgspec

from hawker.catalog.change import Position, Scope
from hawker.catalog.database import Database
from hawker.catalog.stream_positions import StreamPositions, StreamState
from tests.catalog.disk import A, B


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
