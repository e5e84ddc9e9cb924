import sqlite3
from pathlib import Path

import apsw
import pytest

from hawker.catalog.database import CHECKPOINT_PAGES, Database
from hawker.errors import CannotStart
from tests.catalog.disk import A, opened, put, rows, said


def test_a_plain_sqlite3_reads_the_file_while_it_is_written(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    reader = sqlite3.connect(f"file:{storage.path}?mode=ro", uri=True)
    assert reader.execute("SELECT * FROM things").fetchall() == [(A, 1, 10)]
    said(storage, put(1, 11))
    assert reader.execute("SELECT size FROM things").fetchall() == [(11,)]
    columns = [row[1] for row in reader.execute("PRAGMA table_info(things)")]
    assert columns == ["node", "id", "size"]


def test_what_is_raised_in_a_transaction_undoes_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "c.db")
    with pytest.raises(KeyError), database.transaction(durable=True) as connection:
        connection.execute("INSERT INTO __c_lease VALUES (1, 'x')")
        raise KeyError
    assert database.connection.execute("SELECT count(*) FROM __c_lease").get == 0


def test_durable_transactions_are_synced_and_others_are_not(tmp_path: Path) -> None:
    database = Database(tmp_path / "c.db")
    for durable, level in ((True, 2), (False, 1), (True, 2)):
        with database.transaction(durable=durable) as connection:
            assert connection.pragma("synchronous") == level


def test_the_log_of_writes_is_copied_into_the_file(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    for number in range(40):
        said(storage, *(put(number * 1000 + each, "x" * 500) for each in range(100)))
    log = tmp_path / f"{A}.db-wal"
    assert log.stat().st_size < 3 * CHECKPOINT_PAGES * 4096
    assert len(rows(storage)) == 4000


@pytest.mark.parametrize(
    ("content", "why"), [(b"no database at all, but long enough to look like one" * 100, "is damaged"), (b"short", "")]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "c.db").write_bytes(content)
    with pytest.raises(CannotStart, match=why):
        Database(tmp_path / "c.db")


def test_a_database_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "c.db"))
    other.execute("CREATE TABLE t (a)")
    other.close()
    with pytest.raises(CannotStart, match="not a hawker catalog"):
        Database(tmp_path / "c.db")


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path / "c.db")
    database.connection.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(CannotStart, match="written by a newer hawker"):
        Database(tmp_path / "c.db")


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot be opened"):
        Database(tmp_path / "nowhere" / "c.db")
