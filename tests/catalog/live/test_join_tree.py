import pytest

from hawker.catalog.live.join_tree import TableInfo, tree_of

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
