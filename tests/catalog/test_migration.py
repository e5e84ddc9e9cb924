from pathlib import Path

import apsw
import pytest

from hawker.catalog.contract import Statement
from hawker.catalog.schema import SchemaRefused
from tests.catalog.disk import A, opened, put, rows, said, thing

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
