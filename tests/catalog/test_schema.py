import re

import pytest

from hawker.catalog.change import Scope
from hawker.catalog.schema import (
    FILE_BYTES,
    SchemaRefused,
    described,
    fingerprint,
    normal,
    parse,
    quoted,
    read,
    shipped,
    tokens,
    unquoted,
)

KEY = "node TEXT NOT NULL PRIMARY KEY"


def test_the_shipped_tables_have_the_scopes_that_their_file_says() -> None:
    tables = read((shipped(),)).tables
    assert tables["nodes"].scope is Scope.GLOBAL
    assert tables["apps"].scope is Scope.GLOBAL
    assert tables["machines"].scope is Scope.REGION
    assert all(table.key[0] == "node" for table in tables.values())


def test_a_file_without_scope_is_of_the_region() -> None:
    schema = read((shipped(), f"CREATE TABLE mine ({KEY});", f"-- scope: global\nCREATE TABLE all_of ({KEY});"))
    assert schema.tables["mine"].scope is Scope.REGION
    assert schema.tables["all_of"].scope is Scope.GLOBAL


def test_defaults_are_as_a_row_has_them() -> None:
    columns = "a REAL NOT NULL DEFAULT 8, b TEXT DEFAULT CURRENT_TIMESTAMP, c, d AS (a + 1), e BLOB DEFAULT x'00'"
    table = read((f"CREATE TABLE t ({KEY}, {columns})",)).tables["t"]
    assert table.columns == ("a", "b", "c", "e")
    assert table.fixed == (True, False, True, True)
    assert table.defaults[0] == 8.0
    assert isinstance(table.defaults[0], float)
    assert table.defaults[2:] == (None, b"\0")


def test_a_table_whose_empty_row_cannot_be_has_no_known_defaults() -> None:
    table = read((f"CREATE TABLE t ({KEY}, a TEXT DEFAULT '{{', b AS (json_extract(a, '$.x')) STORED)",)).tables["t"]
    assert table.fixed == (False,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE TABLE t (id INTEGER PRIMARY KEY)", "primary key is nullable"),
        ("CREATE TABLE t (a TEXT NOT NULL, b INTEGER, PRIMARY KEY (a, b))", "primary key is nullable: declare b"),
        ("CREATE TABLE t (a TEXT)", "needs a primary key"),
        ("CREATE TABLE t (a INTEGER NOT NULL PRIMARY KEY) WITHOUT ROWID", "must begin with the owner"),
        ("CREATE TABLE t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY)", "no collation but BINARY"),
        (f"CREATE TABLE t ({KEY}, b INTEGER UNIQUE)", "has unique indices besides the primary key"),
        (f"CREATE TABLE t ({KEY}, b); CREATE UNIQUE INDEX u ON t (b)", "unique indexes are not supported"),
        (f"CREATE TABLE t ({KEY}, b TEXT NOT NULL)", "NOT NULL and has no DEFAULT"),
        (f"CREATE TABLE t ({KEY}, b REFERENCES other (x))", "foreign keys are not supported"),
        (f"CREATE TABLE t ({KEY}, FOREIGN KEY (node) REFERENCES other (x))", "foreign keys are not supported"),
        ("CREATE TABLE t (a TEXT NOT NULL, id INTEGER PRIMARY KEY AUTOINCREMENT)", "AUTOINCREMENT"),
        (f"CREATE TEMP TABLE t ({KEY})", "unsupported command: CREATE TEMP TABLE"),
        ("CREATE TABLE t AS SELECT 1", "CREATE TABLE AS SELECT is not supported"),
        ("CREATE VIEW v AS SELECT 1", "unsupported command"),
        (f"CREATE TABLE t ({KEY}); INSERT INTO t VALUES ('x')", "unsupported command"),
        (f"CREATE TABLE t ({KEY}); DROP TABLE t", "unsupported command"),
        (f"CREATE TABLE __t ({KEY})", "the catalog's own"),
        (f"CREATE TABLE t__m ({KEY})", "the catalog's own"),
        (f"CREATE TABLE t ({KEY}, __ver INTEGER)", "the catalog's own"),
        ("ATTACH 'x' AS y", "unsupported command"),
        ("CREATE TABLE", "incomplete input"),
        ("-- scope: mars\nCREATE TABLE t (a)", "neither region nor global"),
        (
            f"CREATE TABLE t ({KEY}); CREATE INDEX i ON t (node); DROP INDEX IF EXISTS i",
            "both created and dropped|unsupp",
        ),
        (" " * (FILE_BYTES + 1), "may have"),
        (f"CREATE TABLE t ({KEY}, {', '.join(f'c{n}' for n in range(300))})", "columns, 200 at most"),
    ],
)
def test_refused_schemas(text: str, why: str) -> None:
    with pytest.raises(SchemaRefused, match=why):
        read((text,))


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TABLE IF NOT EXISTS t ({KEY}); CREATE TABLE IF NOT EXISTS t ({KEY})",
        f"CREATE TABLE t ({KEY}, b INTEGER CHECK (b > 0), c AS (b + 1)) STRICT".replace("c AS", "c INTEGER AS"),
        f"CREATE TABLE main.t ({KEY}); CREATE INDEX i ON t (node); DROP INDEX IF EXISTS another;",
        "",
        "-- nothing but a comment",
    ],
)
def test_allowed_schemas(text: str) -> None:
    assert set(read((text,)).tables) <= {"t"}


def test_the_fingerprint_is_of_what_the_tables_mean() -> None:
    def of(text: str) -> str:
        return fingerprint(read((text,)).tables)

    assert of(f"CREATE TABLE t ({KEY}, b, c)") == of(f"create table IF NOT EXISTS t({KEY},\n c,  b) -- so")
    assert of(f"CREATE TABLE t ({KEY}, b, c)") != of(f"CREATE TABLE t ({KEY}, b)")
    assert of(f"CREATE TABLE t ({KEY})") != of(f"-- scope: global\nCREATE TABLE t ({KEY})")
    assert re.fullmatch("[0-9a-f]{16}", of(shipped()))


def test_one_table_is_described_by_its_text() -> None:
    table = described("CREATE TABLE t (b, k INTEGER NOT NULL, node TEXT NOT NULL, PRIMARY KEY (node, k))", Scope.GLOBAL)
    assert (table.key, table.places, table.stored) == (("node", "k"), (2, 1), ("b", "k", "node"))


TABLE = """CREATE TABLE t ( -- a comment, with a comma
    a TEXT NOT NULL DEFAULT 'x,)y', [b c] INTEGER CHECK ("b c" IN (1, (2))), /* ) */
    d REAL DEFAULT -1.5e-3, PRIMARY KEY (a, [b c]), CONSTRAINT big CHECK (d > 0)) WITHOUT ROWID"""


def test_columns_have_their_declarations() -> None:
    columns = parse(TABLE).columns
    assert list(columns) == ["a", "b c", "d"]
    assert columns["a"] == "a TEXT NOT NULL DEFAULT 'x,)y'"
    assert columns["b c"] == '[b c] INTEGER CHECK ( "b c" IN ( 1 , ( 2 ) ) )'


def test_constraints_and_options_are_apart() -> None:
    parsed = parse(TABLE)
    assert parsed.constraints == ("constraint big check ( d > 0 )", "primary key ( a , [b c] )")
    assert parsed.options == "without rowid"


def test_case_and_blanks_do_not_count_outside_of_quotes() -> None:
    assert normal("A  text\n-- so\nDEFAULT 'X'") == normal("a TEXT default 'X'")
    assert normal("a DEFAULT 'X'") != normal("a DEFAULT 'x'")


def test_operators_and_blobs_are_one_token() -> None:
    assert tokens("a||b->>'c'>=x'00'") == ["a", "||", "b", "->>", "'c'", ">=", "x'00'"]


def test_names_are_quoted_and_back() -> None:
    for name in ("plain", 'with "quotes"', "[odd"):
        assert unquoted(quoted(name)) == name
    assert unquoted("[b c]") == "b c"
    assert unquoted("`b`") == "b"
