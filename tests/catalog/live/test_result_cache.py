from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.catalog.live.result_cache import CachedQuery, FreshRow, ResultCache, ResultSnapshot, completed_query
from hawker.errors import BadRequest

_ABOUT = CachedQuery(sql="SELECT 1", columns=("a",), sources=1)


def _row(key: int, text: str) -> FreshRow:
    return FreshRow(keys=((key,),), cells=(text,))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ResultCache]:
    one = ResultCache(tmp_path / "kept.db", 1, history=10)
    one.fill([_row(1, "a"), _row(2, "b")])
    yield one
    one.close()


def test_only_touched_roots_are_replaced(kept: ResultCache) -> None:
    changes = kept.replace([_row(2, "c"), _row(3, "d")], [(2,), (3,), (9,)])
    assert [(one.kind, one.row_id, one.row, one.number) for one in changes] == [
        ("update", 2, ("c",), 1),
        ("insert", 3, ("d",), 2),
    ]
    gone = kept.replace([], [(1,)])
    assert [(one.kind, one.row, one.number) for one in gone] == [("delete", ("a",), 3)]
    assert kept.last == 3


def test_ids_are_not_used_again(kept: ResultCache) -> None:
    kept.replace([], [(2,)])
    (back,) = kept.replace([_row(2, "b")], [(2,)])
    assert (back.kind, back.row_id) == ("insert", 3)


def test_history_is_cut(kept: ResultCache) -> None:
    for turn in range(150):
        kept.replace([_row(1, f"turn {turn}")], [(1,)])
    snapshot = ResultSnapshot(kept.file)
    assert (kept.last, snapshot.last) == (150, 150)
    assert kept.floor == snapshot.floor > 1
    assert [one.number for one in snapshot.changes_after(145)] == [146, 147, 148, 149, 150]
    snapshot.close()


def test_a_snapshot_stays(kept: ResultCache) -> None:
    snapshot = ResultSnapshot(kept.file)
    kept.replace([], None)
    assert snapshot.rows(1) == [(1, ("a",))]
    assert snapshot.rows(5) == [(2, ("b",))]
    assert snapshot.rows(5) == []
    snapshot.close()


def test_numbers_go_on_when_it_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "one.db"
    first = ResultCache(file, 1)
    first.fill([_row(1, "a")])
    first.replace([_row(1, "b")], [(1,)])
    first.note(_ABOUT, completed=True)
    first.close()
    assert completed_query(file) == _ABOUT
    second = ResultCache(file, 1)
    second.note(_ABOUT, completed=False)
    (change,) = second.replace([_row(1, "c"), _row(2, "d")][:1], None)
    assert (change.kind, change.row_id, change.number) == ("update", 1, 2)
    second.close()
    assert completed_query(file) is None


@pytest.mark.parametrize("content", [b"", b"no database at all, by no means" * 40])
def test_file_that_is_no_cached_answer_is_not_taken(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.db"
    file.write_bytes(content)
    assert completed_query(file) is None
    assert completed_query(tmp_path / "nowhere.db") is None


def test_an_answer_may_be_too_big(tmp_path: Path) -> None:
    kept = ResultCache(tmp_path / "big.db", 1, most_rows=3)
    kept.fill([_row(1, "a"), _row(2, "b")])
    with pytest.raises(BadRequest, match="too big"):
        kept.replace([_row(n, "x") for n in range(10)], None)
    with pytest.raises(BadRequest, match="too big"):
        kept.replace([_row(8, "x"), _row(9, "x")], [(8,), (9,)])
    snapshot = ResultSnapshot(kept.file)
    assert [cells for _, cells in snapshot.rows(10)] == [("a",), ("b",)], "nothing of it was kept"
    snapshot.close()
    assert kept.last == 0
    kept.close()


def test_equal_rows_without_keys_are_counted(tmp_path: Path) -> None:
    one = ResultCache(tmp_path / "bag.db", 0)
    same, other = FreshRow(keys=(), cells=("x",)), FreshRow(keys=(), cells=("y",))
    one.fill([same, same, other])
    changes = one.replace([same, other, other, other], None)
    assert sorted((change.kind, change.row) for change in changes) == [
        ("delete", ("x",)),
        ("insert", ("y",)),
        ("insert", ("y",)),
    ]
    one.close()
