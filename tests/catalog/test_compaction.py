from pathlib import Path

from hawker.catalog.change import Delta, Op, Scope
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from tests.catalog.disk import EPOCH, A, B, C, gone, opened, put, rows, said, thing, whole


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
