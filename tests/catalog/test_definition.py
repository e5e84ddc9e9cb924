from hawker.catalog.definition import normal, parse, quoted, tokens, unquoted

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
