import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.live.join_tree import SqlTokenKind, TableInfo, quoted, tokens_of, tree_of

_SCHEMA = {
    "t": TableInfo("t", ("a", "b", "c"), ("a", "b")),
    "u": TableInfo("u", ("k", "x"), ("k",)),
}
_GATHERING = frozenset({"count", "max"})


def test_the_texts_that_are_asked() -> None:
    tree = tree_of("SELECT x.c FROM t AS x LEFT JOIN u ON u.k = x.a WHERE x.b > 1 ORDER BY u.x;", _SCHEMA, _GATHERING)
    assert tree is not None
    assert tree.whole() == (
        'SELECT x.c, "x"."a", "x"."b", "u"."k"  FROM t AS x LEFT JOIN u ON u.k = x.a WHERE x.b > 1 ORDER BY u.x'
    )
    assert tree.of_roots(2) == (
        'SELECT x.c, "x"."a", "x"."b", "u"."k"  FROM (SELECT * FROM "t" WHERE ("a", "b") IN (VALUES (?, ?), (?, ?)))'
        ' AS "x" LEFT JOIN u ON u.k = x.a WHERE x.b > 1 ORDER BY u.x'
    )
    assert tree.roots_of(1, 1) == (
        'SELECT DISTINCT "x"."a", "x"."b" FROM t AS x  JOIN (SELECT * FROM "u" WHERE ("k") IN (VALUES (?))) AS "u"'
        " ON u.k = x.a WHERE x.b > 1"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t",
        "select t.a from main.t where a = 'GROUP BY'",
        "SELECT a FROM t x, t y WHERE x.a = y.b",
        "SELECT t.a FROM t CROSS JOIN u ON t.a = u.k",
        "SELECT t.a FROM t INNER JOIN u USING (k)",
        "SELECT t.a FROM t LEFT OUTER JOIN u ON t.a = u.k AND u.x > 1 WHERE t.c = 1 AND t.b IN (1, 2)",
        'SELECT "max" FROM "t" -- the end',
        "SELECT t.x FROM t LEFT JOIN u ON u.k = 1 WHERE t.x = 1",
    ],
)
def test_plain_queries(sql: str) -> None:
    assert tree_of(sql, _SCHEMA, _GATHERING) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "VALUES (1)",
        "SELECT 1",
        "SELECT count(*) FROM t",
        'SELECT "count"(*) FROM t',
        "SELECT DISTINCT a FROM t",
        "SELECT a FROM t GROUP BY a",
        "SELECT a FROM t LIMIT 1",
        "SELECT a FROM t UNION SELECT k FROM u",
        "SELECT a FROM t WHERE a IN (SELECT k FROM u)",
        "WITH u AS (SELECT 1) SELECT * FROM u",
        "SELECT a FROM (SELECT * FROM t)",
        "SELECT a FROM (t)",
        "SELECT a FROM nowhere",
        "SELECT a FROM other.t",
        "SELECT a FROM t NATURAL JOIN u",
        "SELECT a FROM t RIGHT JOIN u ON 1",
        "SELECT a FROM t FULL JOIN u ON 1",
        "SELECT a FROM t, t",
        "SELECT row_number() OVER () FROM t",
        "SELECT rowid FROM t",
        "SELECT a FROM t LEFT JOIN u ON u.k = t.a WHERE u.k IS NULL",
        "SELECT a FROM t LEFT JOIN u ON u.k = t.a WHERE x > 1",
        'SELECT a FROM t LEFT JOIN u ON u.k = t.a WHERE "x" > 1',
        "SELECT a FROM t LEFT JOIN u AS v ON v.k = t.a WHERE 'v'.x > 1",
        "SELECT y.a FROM t LEFT JOIN u ON u.k = t.a JOIN t y ON y.a = u.x",
        "SELECT a FROM t LEFT JOIN u ON u.k = t.a, t y USING (k)",
    ],
)
def test_queries_that_are_asked_as_a_whole(sql: str) -> None:
    assert tree_of(sql, _SCHEMA, _GATHERING) is None


@pytest.mark.parametrize(
    ("sql", "texts"),
    [
        ("SELECT a.b FROM t", ["SELECT", "a", ".", "b", "FROM", "t"]),
        ("SELECT 'it''s', x'00'", ["SELECT", "'it''s'", ",", "x'00'"]),
        ('SELECT "a ""b""", `c`, [d e]', ["SELECT", 'a "b"', ",", "c", ",", "d e"]),
        ("a -- FROM x\n/* FROM y */ b", ["a", "b"]),
        ("a->>'$.b' || 1.5e3 <> .5", ["a", "->>", "'$.b'", "||", "1.5e3", "<>", ".5"]),
        ("/* open", []),
    ],
)
def test_words(sql: str, texts: list[str]) -> None:
    assert [token.text for token in tokens_of(sql)] == texts


def test_kinds_and_depth() -> None:
    word, open_, quoted_, close = tokens_of('f("x")')
    assert (word.kind, quoted_.kind) == (SqlTokenKind.WORD, SqlTokenKind.QUOTED)
    assert (word.depth, open_.depth, quoted_.depth, close.depth) == (0, 0, 1, 0)
    assert (word.upper, quoted_.upper) == ("F", "")


@given(st.text(max_size=60))
def test_places_are_those_of_the_text(sql: str) -> None:
    end = 0
    for token in tokens_of(sql):
        assert end <= token.start < token.end
        end = token.end
    assert end <= len(sql)


@given(st.text(min_size=1, max_size=20))
def test_a_quoted_name_is_read_back(name: str) -> None:
    (token,) = tokens_of(quoted(name))
    assert (token.kind, token.text) == (SqlTokenKind.QUOTED, name)
