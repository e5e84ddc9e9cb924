"""Short looks into a catalog's file: what is committed, and nothing else."""

from pathlib import Path

import pytest

from hawker.catalog.point_reads import PointReader
from hawker.clock import ManualClock
from hawker.errors import CannotStart, Unavailable
from tests.gateway.catalogs import A, Files


def test_point_reader_sees_a_commit_at_once(tmp_path: Path) -> None:
    files = Files(tmp_path, ManualClock())
    files.of(A)
    glance = PointReader(files.path(A))
    assert glance.rows("SELECT region FROM nodes WHERE node = ?", A) == []
    files.node(A, "mad")
    assert glance.rows("SELECT region FROM nodes WHERE node = ?", A) == [("mad",)]
    glance.close()
    files.close()


def test_nothing_can_be_written(tmp_path: Path) -> None:
    files = Files(tmp_path, ManualClock())
    files.node(A, "mad")
    glance = PointReader(files.path(A))
    for query in ("DELETE FROM nodes", "PRAGMA query_only = 0; DELETE FROM nodes"):
        with pytest.raises(Unavailable):
            glance.rows(query)
    assert glance.rows("SELECT count(*) FROM nodes") == [(1,)]
    glance.close()
    files.close()


def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="does its node run here"):
        PointReader(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("not a database at all, and long enough to be read as one" * 20)
    with pytest.raises(CannotStart):
        PointReader(tmp_path / "text.db")
