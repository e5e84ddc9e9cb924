import random
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from hawker.archive.failure import ArchiveDamaged
from hawker.archive.history_file import TABLES, History, read, write
from tests.archive.histories import ANY_HISTORY, ID, history


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(history(), tmp_path / "a.sqlite")
    return tmp_path / "a.sqlite"


@settings(max_examples=30, deadline=None)
@given(ANY_HISTORY)
def test_history_that_is_written_is_read_back(written: History) -> None:
    with TemporaryDirectory() as directory:
        write(written, Path(directory) / "a.sqlite")
        assert read(Path(directory) / "a.sqlite") == written


def test_writing_again_replaces_it(file: Path) -> None:
    write(history("00000000000001"), file)
    assert read(file) == history("00000000000001")


def test_the_same_history_is_the_same_file(file: Path, tmp_path: Path) -> None:
    write(history(), tmp_path / "b.sqlite")
    assert (tmp_path / "b.sqlite").read_bytes() == file.read_bytes()


def test_only_its_owner_can_read_it(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_any_sqlite_reads_it_and_its_schema_explains_itself(file: Path) -> None:
    with closing(sqlite3.connect(file)) as shell:
        assert shell.execute("SELECT id, json_extract(config_json, '$.env.KEY') FROM machine").fetchone() == (
            ID,
            "secret",
        )
        assert shell.execute("SELECT datetime(at), type FROM events").fetchall() == [("2026-11-21 12:00:00", "launch")]
        schema = "".join(sql for (sql,) in shell.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL"))
        assert "-- what happened to it" in schema


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_columns_are_the_fields_of_the_row(file: Path, table: object) -> None:
    named = {each.name: each.columns for each in TABLES}
    with closing(sqlite3.connect(file)) as shell:
        for name, columns in named.items():
            assert tuple(row[1] for row in shell.execute(f"PRAGMA table_info({name})")) == columns


def spoilt(sql: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.executescript(sql)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoilt("PRAGMA application_id = 0"), "not a history of a machine"),
        (spoilt("PRAGMA user_version = 2"), "newer hawker"),
        (spoilt("DROP TABLE steps"), "not those of a history"),
        (spoilt("CREATE TABLE more (id)"), "not those of a history"),
        (spoilt("CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END"), "not those of a history"),
        (spoilt("DROP TABLE runs; CREATE VIEW runs AS SELECT 1 AS id"), "not those of a history"),
        (spoilt("DELETE FROM machine"), "0 machines"),
        (spoilt("INSERT INTO machine SELECT 'other', app, name, node, region, state, version, image, image_digest,"
                " private_ip, created_at, updated_at, config_json, details_json FROM machine"), "2 machines"),
        (spoilt("UPDATE events SET at = 'yesterday'"), "not a sound history"),
        (spoilt("UPDATE events SET at = '2026-01-01T00:00:00'"), "not a sound history"),
        (spoilt("UPDATE events SET type = x'ff00'"), "not a sound history"),
        (spoilt("UPDATE events SET type = CAST(x'ff' AS TEXT)"), "not a sound history"),
        (spoilt("UPDATE steps SET attempt = 'many'"), "not a sound history"),
        (lambda path: path.write_bytes(b"nothing of the kind" * 1000), "not a sound history"),
        (lambda path: path.write_bytes(b""), "not a history of a machine"),
        (lambda path: path.write_bytes(path.read_bytes()[:6000]), "not a sound history"),
    ],
)  # fmt: skip
def test_unsound_history_is_refused(file: Path, spoil: Callable[[Path], None], says: str) -> None:
    spoil(file)
    with pytest.raises(ArchiveDamaged, match=says):
        read(file)


def test_a_damaged_byte_anywhere_raises_nothing_but_damage(file: Path) -> None:
    sound, chance = file.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(400):
        data = bytearray(sound)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        try:
            read(file)
        except ArchiveDamaged:
            refused += 1
    assert refused > 10


def test_a_file_that_says_it_has_a_log_is_read_without_one(file: Path) -> None:
    spoilt("PRAGMA journal_mode = WAL")(file)
    assert read(file) == history()
    assert [path.name for path in file.parent.iterdir()] == [file.name]
