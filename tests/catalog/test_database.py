import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from hawker.catalog.contract import Statement
from hawker.catalog.database import CHECKPOINT_PAGES, Database
from hawker.catalog.schema import SchemaRefused
from hawker.errors import CannotStart
from tests.catalog.disk import A, opened, put, rows, said, thing

PAGE_BYTES = 4096


READ = """
import sqlite3, sys
reader = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for query in ("SELECT * FROM things", "SELECT name FROM pragma_table_info('things')"):
    print(reader.execute(query).fetchall())
"""


def read_by_another(file: Path) -> list[str]:
    """A process of its own: two copies of SQLite in one process would break each other's locks."""
    return subprocess.run([sys.executable, "-c", READ, file], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )


def test_a_plain_sqlite3_reads_the_file_while_it_is_written(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    for size in (10, 11):
        said(storage, put(1, size))
        things, columns, _ = read_by_another(storage.path)
        assert things == f"[('{A}', 1, {size})]"
        assert columns == "[('node',), ('id',), ('size',)]"


def test_error_in_a_transaction_rolls_it_back(tmp_path: Path) -> None:
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


def test_a_slow_reader_holds_up_nobody_for_long(tmp_path: Path) -> None:
    """While it reads, the log grows; once it has read, the log is used again."""
    database = Database(tmp_path / "c.db", crowded_pages=CHECKPOINT_PAGES)
    reader = apsw.Connection(str(database.path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM __c_log").get == 0
    for _ in range(3):
        write_pages(database, CHECKPOINT_PAGES)
        assert reader.execute("SELECT count(*) FROM __c_log").get == 0
    log = tmp_path / "c.db-wal"
    held = log.stat().st_size
    assert held > 3 * CHECKPOINT_PAGES * PAGE_BYTES
    reader.execute("COMMIT")
    for _ in range(3):
        write_pages(database, CHECKPOINT_PAGES)
    assert log.stat().st_size < held + 2 * CHECKPOINT_PAGES * PAGE_BYTES


def write_pages(database: Database, pages: int) -> None:
    with database.transaction(durable=False) as connection:
        for _ in range(pages):
            text = "INSERT INTO __c_log (stream, ver, at, payload) VALUES (1, 1, 0, zeroblob(?))"
            connection.execute(text, (PAGE_BYTES,))


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


THINGS = """CREATE TABLE things (node TEXT NOT NULL, id INTEGER NOT NULL, size INTEGER{more},
    PRIMARY KEY (node, id)) WITHOUT ROWID;"""


def things(more: str = "") -> str:
    return THINGS.replace("{more}", more)


def test_an_added_column_has_its_default_and_publishes_nothing(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.declare([things(", colour TEXT NOT NULL DEFAULT 'red' CHECK (colour != '')")])
    assert rows(storage) == [(A, 1, 10, "red")]
    assert said(storage, put(2, 20)).version == 2
    with pytest.raises(Exception, match="CHECK"):
        storage.commit([Statement(query="UPDATE things SET colour = ''")], 1.0)


def test_a_table_without_the_files_is_kept(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.declare([])
    assert "things" in storage.tables()
    assert said(storage, put(1, 10)).ops == (thing(1, 10),)


def test_indexes_follow_the_files(tmp_path: Path) -> None:
    storage = opened(tmp_path)

    def names() -> set[object]:
        found = rows(storage, "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'things'")
        return {name for (name,) in found}

    storage.declare([things() + "CREATE INDEX one ON things (size); CREATE INDEX two ON things (id);"])
    assert names() == {"one", "two"}
    storage.declare([things() + "CREATE INDEX one ON things (size, id);"])
    assert names() == {"one"}
    storage.declare(["DROP INDEX IF EXISTS one;"])
    assert names() == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (THINGS.replace(", size INTEGER{more}", ""), "won't drop column size without the destructive flag"),
        (THINGS.replace("size INTEGER{more}", "size TEXT"), "won't change column size"),
        (
            things(" NOT NULL DEFAULT 0").replace("KEY (node, id)", "KEY (node, id, size)"),
            "won't change the primary key",
        ),
        (things(", CHECK (size > 0)"), "won't change the table's constraints"),
        (things().replace(" WITHOUT ROWID", ""), "won't change the table's constraints"),
        ("-- scope: global\n" + things(), "won't change its scope from region to global"),
        (things(", at TEXT DEFAULT CURRENT_TIMESTAMP"), "Cannot add a column with non-constant default"),
        ("CREATE INDEX machines_by_id ON machines (app);", "already exists"),
    ],
)
def test_migration_that_would_lose_data_is_refused_and_changes_nothing(tmp_path: Path, text: str, why: str) -> None:
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    before = storage.schema_fingerprint
    with pytest.raises(SchemaRefused, match=why):
        storage.declare([text])
    assert storage.schema_fingerprint == before
    assert said(storage, put(1, 11)).version == 2


def test_a_column_that_a_newer_version_added_to_a_shipped_table_stays(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.close()
    raw = apsw.Connection(str(storage.path))
    raw.execute("ALTER TABLE machines ADD COLUMN newer TEXT DEFAULT 'x'")
    raw.close()
    again = opened(tmp_path)
    said(again, Statement(query="INSERT INTO machines (node, id) VALUES (?, 'm')", params=(A,)))
    assert rows(again, "SELECT newer FROM machines") == [("x",)]
