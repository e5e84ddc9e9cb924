from pathlib import Path

from hawker.catalog.change import Op
from hawker.catalog.database import Database
from hawker.catalog.quarantine import QuarantineTable, key_of
from tests.catalog.disk import A, thing


def aside_in(folder: Path, table: str = "__c_unknown") -> QuarantineTable:
    return QuarantineTable(Database(folder / "c.db").connection, table)


def versions(quarantine: QuarantineTable, after: int = -1) -> list[int]:
    return [kept.version for kept in quarantine.of(1, after)]


def test_the_last_version_of_a_row_is_kept(tmp_path: Path) -> None:
    quarantine = aside_in(tmp_path)
    quarantine.put(1, 5, 0, thing(1, 10), 100.0)
    quarantine.put(1, 4, 0, thing(2, 10), 100.0)
    quarantine.put(1, 6, 0, thing(1, 11), 100.0)
    assert [(kept.version, kept.op) for kept in quarantine.of(1)] == [(4, thing(2, 10)), (6, thing(1, 11))]
    assert versions(quarantine, 4) == [6]
    quarantine.clear(1, thing(1, None))
    assert versions(quarantine) == [4]


def test_quarantined_rows_that_a_reset_does_not_confirm_go(tmp_path: Path) -> None:
    quarantine = aside_in(tmp_path)
    quarantine.put(1, 5, 0, thing(1, 10), 100.0)
    quarantine.put(1, 6, 1, thing(2, 10), 100.0)
    quarantine.drop(1, but_run=1)
    assert versions(quarantine) == [6]
    quarantine.drop(1)
    assert (versions(quarantine), quarantine.count) == ([], 0)


def test_deletions_are_collected(tmp_path: Path) -> None:
    quarantine = aside_in(tmp_path)
    quarantine.put(1, 5, 0, Op("t", (A, 1)), 100.0)
    quarantine.put(2, 9, 0, Op("t", (A, 1)), 200.0)
    quarantine.put(1, 6, 0, thing(2, 10), 100.0)
    assert quarantine.collect(150.0) == {1: 5}
    assert versions(quarantine) == [6]
    assert quarantine.count == 2


def test_a_bad_row_has_its_reason(tmp_path: Path) -> None:
    connection = Database(tmp_path / "c.db").connection
    quarantine = QuarantineTable(connection, "__c_quarantine")
    key = quarantine.put(1, 5, 0, thing(1, 10), 100.0)
    quarantine.explain(1, "things", key, "x" * 1000, 7.0)
    assert key == key_of((A, 1))
    assert connection.execute("SELECT reason, at FROM __c_quarantine").get == ("x" * 200, 7.0)
